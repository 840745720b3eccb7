import json

import pytest

from modnorm.client.client import Client
from modnorm.client.lab_run import LabRun
from modnorm.client.rescoring import Judged, rescore_run, rescored_document
from modnorm.errors import InvalidInputError, PreconditionError
from modnorm.search.rescored_votes import OldAndNew, Reselection
from modnorm.tasks import get_task
from modnorm.v1 import experiment_pb2 as experiments
from tests.faults import error_at


@pytest.fixture
def client(gsm8k_lab):
    with Client(gsm8k_lab) as made:
        yield made


@pytest.fixture
def reference(client, gsm8k_experiment):
    return rescore_run(LabRun(client, gsm8k_experiment), get_task("gsm8k", scorer="reference"))


def test_the_same_scorer_changes_nothing(client, gsm8k_experiment):
    found = rescore_run(LabRun(client, gsm8k_experiment), get_task("gsm8k"))
    assert (found.old_scorer, found.new_scorer) == ("gsm8k-v3", "gsm8k-v3")
    assert (found.selection, found.heldout) == (Judged(8, 0), Judged(6, 0))
    for model in (found.base, *found.candidates):
        assert model.selection_reward.new == model.selection_reward.old
        assert model.heldout_metric.new == model.heldout_metric.old
    for ensemble in found.ensembles:
        assert ensemble.metric == OldAndNew(1.0, 1.0)
        assert ensemble.correct == OldAndNew(2, 2)
        assert ensemble.reselected == Reselection(ensemble.experts, (), 1.0, 2)
    assert found.rank_1.reselected == found.rank_1.index


@pytest.mark.parametrize(
    "left_out",
    [
        experiments.Candidate(state=experiments.CANDIDATE_STATE_STOPPED, reward_upper=0.4),
        experiments.Candidate(selection_reward=0.5, heldout_attempts=1),
    ],
)
def test_what_was_left_out_cannot_be_scored_again(serve_stored, gsm8k_experiment, left_out):
    target = serve_stored(gsm8k_experiment, [left_out], {}, {})
    with Client(target) as client, pytest.raises(PreconditionError) as raised:
        rescore_run(LabRun(client, gsm8k_experiment), get_task("gsm8k"))
    assert raised.value.field == "population.statistics"


def test_another_scorer_judges_every_completion_anew(reference):
    assert (reference.old_scorer, reference.new_scorer) == ("gsm8k-v3", "gsm8k-reference-v1")
    assert (reference.selection, reference.heldout) == (Judged(8, 2), Judged(6, 1))
    assert [model.selection_reward.new for model in reference.candidates] == [0.0, 0.5, 0.5, None]
    assert [model.heldout_metric.new for model in reference.candidates] == [0.5, 0.5, None, None]
    assert reference.base.heldout_metric == OldAndNew(0.5, 0.5)
    assert [model.changed_selection for model in reference.candidates] == [2, 0, 0, 0]
    assert [model.changed_heldout for model in reference.candidates] == [1, 0, 0, 0]


def test_experts_vote_as_selected_and_as_selected_anew(reference):
    assert [(e.population, e.ensemble_size) for e in reference.ensembles] == [
        (2, 1),
        (2, 2),
        (4, 1),
        (4, 2),
    ]
    assert {e.metric for e in reference.ensembles} == {OldAndNew(1.0, 0.5)}
    assert [e.reselected.experts for e in reference.ensembles] == [(1,), (1, 0), (1,), (1, 2)]
    assert [e.reselected.metric for e in reference.ensembles] == [0.5, 0.5, 0.5, None]
    assert [e.reselected.missing for e in reference.ensembles] == [(), (), (), (2,)]
    assert (reference.rank_1.index, reference.rank_1.reselected) == (0, 1)


def test_progress_counts_models(client, gsm8k_experiment):
    told = []
    rescore_run(
        LabRun(client, gsm8k_experiment),
        get_task("gsm8k"),
        on_progress=lambda done, total: told.append((done, total)),
    )
    assert told == [(done, 5) for done in range(1, 6)]


def test_the_document_is_json_with_spec_and_provenance(client, reference, gsm8k_experiment):
    run = LabRun(client, gsm8k_experiment)
    document = json.loads(json.dumps(rescored_document(run, reference)))
    assert document["schema"] == "modnorm-rescored-1"
    assert document["spec"]["task"]["name"] == "gsm8k"
    assert document["provenance"]["scorer"] == document["old_scorer"] == "gsm8k-v3"
    assert document["new_scorer"] == "gsm8k-reference-v1"
    assert document["selection"] == {"total": 8, "changed": 2}
    assert document["ensembles"][3]["reselected"] == {
        "experts": [1, 2],
        "missing": [2],
        "metric": None,
        "correct": None,
    }


def test_an_unfinished_experiment_is_refused(client, gsm8k_experiment):
    gsm8k_experiment.state = experiments.EXPERIMENT_STATE_VOTING
    with pytest.raises(PreconditionError, match="voting"):
        rescore_run(LabRun(client, gsm8k_experiment), get_task("gsm8k"))


def test_what_trained_one_model_is_refused(client, gsm8k_experiment):
    gsm8k_experiment.spec.method.name = "es"
    gsm8k_experiment.spec.iterative.SetInParent()
    gsm8k_experiment.spec.population.ClearField("prefixes")
    gsm8k_experiment.spec.population.ClearField("ensemble_sizes")
    with pytest.raises(InvalidInputError, match="es trained its model by the old scorer"):
        rescore_run(LabRun(client, gsm8k_experiment), get_task("gsm8k"))


def test_rows_of_another_task_are_refused(client, gsm8k_experiment):
    with error_at("task.name", "'numbers'"):
        rescore_run(LabRun(client, gsm8k_experiment), get_task("countdown"))
