import pytest

from modnorm.client.tuning import Trial, development_rows, grid_document, trial_spec
from modnorm.errors import ConflictError
from modnorm.spec import DataSpec, parse_spec
from modnorm.v1.experiment_pb2 import Provenance
from tests.faults import error_at

ROWS = DataSpec(source="bundled:countdown-development", limit=4)
PROVENANCE = {
    "model_digest": "a" * 64,
    "scale_map_digest": "b" * 64,
    "selection_digest": "c" * 64,
    "heldout_digest": "d" * 64,
    "prompts_digest": "f" * 64,
    "scorer": "countdown-v2",
}


def grid(metrics, **provenance):
    return [
        Trial(radius, 39 + seed, metric, Provenance(**{**PROVENANCE, **provenance}))
        for radius, values in metrics.items()
        for seed, metric in enumerate(values)
    ]


def test_the_highest_mean_over_seeds_is_selected(spec):
    found = grid_document(spec, grid({0.32: (0.9, 0.0), 0.16: (0.5, 0.5)}))
    assert [one.radius for one in found.radii] == [0.16, 0.32]
    assert found.radius == 0.16


def test_exact_ties_go_to_the_smaller_scale(spec):
    # Sums in any order are the same only when they are exact: 0.1 + 0.2 + 0.3 is not.
    found = grid_document(spec, grid({0.5: (0.1, 0.2, 0.3), 0.25: (0.3, 0.2, 0.1)}))
    assert found.radii[0].mean == found.radii[1].mean
    assert found.radius == 0.25


def test_the_artifact_says_what_the_trials_were_made_from(spec):
    found = grid_document(spec, grid({0.5: (0.1, 0.2)}, profile_digest="e" * 64))
    assert found.model.digest == "a" * 64
    assert found.method.profile == "e" * 64
    assert found.settings.selection_digest == "c" * 64
    assert found.settings.development_digest == "d" * 64
    assert found.settings.seeds == (39, 40)
    assert grid_document(spec, grid({0.5: (0.1,)})).method.profile is None


@pytest.mark.parametrize("field", [*PROVENANCE, "profile_digest"])
def test_trials_of_other_inputs_do_not_compare(field, spec):
    trials = grid({0.16: (0.5,)}) + grid({0.32: (0.5,)}, **{field: "9" * 64})
    with error_at(field.removesuffix("_digest"), kind=ConflictError) as caught:
        grid_document(spec, trials)
    assert caught.value.remedy


def test_a_trial_reports_its_n_and_k_alone_on_the_development_rows(spec):
    rows = DataSpec(source="dev.jsonl", offset=3, limit=5)
    trial = trial_spec(spec, radius=0.01, seed=39, heldout=rows, ensemble_size=2)
    assert trial.method.radius == 0.01
    assert trial.population.seed == 39
    assert trial.population.reported_prefixes == (4,)
    assert trial.population.ensemble_sizes == (2,)
    assert trial.task.heldout == rows
    assert trial.task.selection == spec.task.selection


def test_a_model_that_is_trained_step_by_step_has_no_ensembles_to_compare(spec):
    content = spec.model_dump(mode="json", exclude={"population", "iterative"})
    trained = parse_spec({**content, "method": "es"})
    with error_at("method.name"):
        trial_spec(trained, radius=0.1, seed=39, heldout=ROWS, ensemble_size=1)


def test_development_rows_are_given_as_in_a_spec():
    whole = {
        "source": "org/set",
        "config": "main",
        "split": "train",
        "revision": "v1",
        "offset": 200,
        "limit": 100,
    }
    text = "{source: org/set, config: main, split: train, revision: v1, offset: 200, limit: 100}"
    assert development_rows(text) == DataSpec.model_validate(whole)
