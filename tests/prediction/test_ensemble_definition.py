"""The task that an ensemble's answers are judged by."""

import pytest

from modnorm.errors import PreconditionError
from modnorm.prediction.ensemble_definition import TaskIdentity, task_identity
from modnorm.spec import parse_spec

SPEC = parse_spec(
    {
        "model": "tiny-thicket",
        "task": {"name": "gsm8k", "selection": "s.jsonl", "heldout": "h.jsonl"},
        "method": {"name": "randopt", "sigma": 0.1},
        "population": {"size": 4, "ensemble_sizes": [1]},
    }
)


@pytest.mark.parametrize("scorer", ["gsm8k-v3", "gsm8k-reference-v1"])
def test_scorer_and_cap_are_those_that_the_run_recorded(scorer):
    """The task's own may be others in another version."""
    task = task_identity(SPEC, {"scorer": scorer, "max_tokens": 77})
    assert (task.scorer, task.load().scorer, task.max_tokens) == (scorer, scorer, 77)


def test_a_scorer_that_this_version_lacks_is_refused_with_a_remedy_for_runs():
    """Votes by another scorer would silently differ from those of the run."""
    stored = TaskIdentity("gsm8k", "gsm8k-v2", None, 64)
    recorded = {"scorer": "gsm8k-v2", "max_tokens": 64}
    for load in (lambda: task_identity(SPEC, recorded).load(), stored.load):
        with pytest.raises(PreconditionError, match="scored by gsm8k-v2") as caught:
            load()
        assert "run it again with gsm8k-v3" in str(caught.value.remedy)
        assert "`modnorm rescore RUN`" in str(caught.value.remedy)
