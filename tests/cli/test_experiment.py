from unittest.mock import Mock

import pytest

from modnorm.cli.run import SAME_COMMAND, check_end, follow_to_end
from modnorm.client.client import Client
from modnorm.errors import EvaluationError
from modnorm.v1 import experiment_pb2 as experiments

STATE = experiments.EXPERIMENT_STATE_SUCCEEDED


@pytest.mark.parametrize(
    ("name", "title", "shown"),
    [("named", "file", "named"), ("", "file", "file"), ("", None, "an-id")],
)
def test_progress_names_an_experiment_by_its_name_or_its_file(capsys, name, title, shown):
    ended = experiments.Experiment(id="an-id", state=STATE)
    ended.spec.name = name
    client = Mock(spec=Client, patience=0.0)
    client.stream.return_value = [experiments.WatchExperimentResponse(state=STATE)]
    client.call.return_value = ended
    assert follow_to_end(client, ended, quiet=False, title=title) is ended
    assert capsys.readouterr().err.startswith(f"{shown}: succeeded")


@pytest.mark.parametrize(
    ("reason", "remedy", "told"),
    [
        ("no engine", "", "no engine (fix the cause; then "),
        (
            "cannot write below /cache: no space",
            "make room (a little) or mend the disk",
            "cannot write below /cache: no space (make room (a little) or mend the disk; then ",
        ),
    ],
)
def test_a_failure_has_one_remedy_that_fits_where_it_ran(reason, remedy, told):
    failed = experiments.Experiment(
        state=experiments.EXPERIMENT_STATE_FAILED, error=reason, remedy=remedy
    )
    for options, go_on in (
        ((), "submit it again: finished results are reused"),
        ((SAME_COMMAND,), "the same command resumes here"),
    ):
        with pytest.raises(EvaluationError) as raised:
            check_end(failed, *options)
        assert str(raised.value) == f"the experiment failed: {told}{go_on})"
