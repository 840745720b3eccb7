import json
import shutil
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file

from modnorm.analysis.run_data import CandidateRow
from modnorm.analysis.run_files import SCALE_MAP
from modnorm.checkpoint.reference import resolve_checkpoint
from modnorm.perturbation.descriptor import Descriptor
from modnorm.perturbation.exports import adapter_tensors, export_candidate
from modnorm.perturbation.methods import build_scale_map
from modnorm.tasks import Judgement
from modnorm.v1 import experiment_pb2 as experiments
from modnorm.wire.conversions import spec_to_proto
from tests.scripted_services import write_stored

NO_ANSWER = ("no", Judgement(0.0, None, correct=False))


def candidate(index, reward, drawn_with):
    """A candidate that was scored, and its descriptor."""
    coefficients = (float(np.float32(0.01)),) * len(drawn_with.active)
    drawn = Descriptor(
        "portable-v1", 100 + index, "randopt", 0.01, drawn_with.digest, coefficients
    )
    return CandidateRow(index, 100 + index, "scored", reward), drawn


@pytest.fixture
def noise():
    """Rank and target modules of the search; none for full rank."""
    return {}


@pytest.fixture
def search(spec, noise):
    """A finished search of four candidates, ranked 2, 0; two failed."""
    drawn_with = build_scale_map("randopt", resolve_checkpoint("tiny-thicket"), **noise)
    return (
        experiments.Experiment(
            id="e1",
            spec=spec_to_proto(spec),
            state=experiments.EXPERIMENT_STATE_SUCCEEDED,
            provenance=experiments.Provenance(
                scale_map_digest=drawn_with.digest, scorer="countdown-v2", max_tokens=64
            ),
            ensembles=[
                experiments.EnsembleResult(population=4, ensemble_size=size, experts=[2, 0][:size])
                for size in (1, 2)
            ],
        ),
        [
            candidate(0, 0.25, drawn_with),
            (CandidateRow(1, 101, "failed"), None),
            candidate(2, 0.75, drawn_with),
            (CandidateRow(3, 103, "failed"), None),
        ],
        {SCALE_MAP: drawn_with.to_json()},
    )


@pytest.fixture
def serve_search(serve_directory, search, tmp_path, monkeypatch):
    """Serve a lab that stored the search; returns its target."""
    monkeypatch.setenv("MODNORM_CACHE_DIR", str(tmp_path / "cache"))

    def start():
        experiment, candidates, texts = search
        rows = {
            "selection": [{"numbers": [1, 2], "target": 3}],
            "heldout": [{"numbers": [4, 2], "target": 8}],
        }
        unanswered = {(index, "heldout"): [NO_ANSWER] for index in (0, 2)}
        drawn = [(row.index, one) for row, one in candidates if one is not None]
        directory = write_stored(
            tmp_path / "stored",
            experiment,
            [row for row, _ in candidates],
            rows,
            unanswered,
            drawn,
            texts,
        )
        return serve_directory(experiment, directory)

    return start


@pytest.fixture
def export(serve_search, tmp_path):
    """Return the words of an export from a lab that has the search."""
    place = ("--out", tmp_path / "out")
    return lambda *options: ("export", "e1", "--server", serve_search(), *place, *options)


def test_of_a_lab_the_candidate_of_a_rank_is_written(export, modnorm_json, search, tmp_path):
    told = modnorm_json(*export("--rank", 1))
    found = search[1][2][1]
    base = resolve_checkpoint("tiny-thicket")
    digest = export_candidate(base, found, build_scale_map("randopt", base), tmp_path / "other")
    assert told == {
        "directory": str(tmp_path / "out"),
        "rank": 1,
        "candidate": 2,
        "selection_reward": 0.75,
        "weights_sha256": digest,
    }
    fetched = [each.name for each in (tmp_path / "cache").rglob("*.parquet")]
    assert fetched == ["descriptors.parquet"]
    written = json.loads((tmp_path / "out" / "candidate.json").read_text())
    assert (written["seed"], tuple(written["coefficients"])) == (102, found.coefficients)


@pytest.mark.parametrize("rank", [4, 9])
def test_a_rank_that_nobody_has_is_refused(rank, export, refusal, tmp_path):
    err = refusal(*export("--rank", rank))
    assert err.startswith(f"error: rank: there is no rank {rank}: 2 of 4 candidates have a score")
    assert "from 1 to 2" in err
    assert not (tmp_path / "out").exists()


def test_another_model_under_the_name_is_refused(export, refusal, search, tmp_path):
    of_this = build_scale_map("randopt", resolve_checkpoint("tiny-thicket"))
    of_another = replace(of_this, model_digest="another")
    search[2][SCALE_MAP] = of_another.to_json()
    err = refusal(*export("--rank", 1))
    assert err.startswith("error: model: tiny-thicket is not the model")
    assert "--model" in err
    assert not (tmp_path / "out").exists()


def test_a_model_that_is_elsewhere_on_this_machine_is_named(
    export, refusal, printed, search, tmp_path
):
    base = resolve_checkpoint("tiny-thicket").directory
    here = shutil.copytree(base, tmp_path / "here")
    search[0].spec.model.name = "/of/the/lab"
    err = refusal(*export("--rank", 1))
    assert err.startswith("error: model: there is no directory '/of/the/lab'")
    assert "--model" in err
    printed(*export("--rank", 1, "--model", here))
    assert (tmp_path / "out" / "candidate.json").exists()


LINEAR: dict[str, Any] = {"rank": 3, "target_modules": "all-linear"}


@pytest.mark.parametrize("noise", [LINEAR])
def test_of_a_lab_the_experts_are_written_as_adapters(export, modnorm_json, search, tmp_path):
    folder, base = tmp_path / "out", resolve_checkpoint("tiny-thicket")
    assert modnorm_json(*export("--adapters", "--k", 2)) == {
        "directory": str(folder),
        "experts": {"expert-1": 2, "expert-2": 0},
        "command": [
            *("vllm", "serve", str(base.directory), "--enable-lora"),
            *("--max-loras", "2", "--max-lora-rank", "8", "--lora-modules"),
            *(f"expert-{rank}={folder / f'expert-{rank}'}" for rank in (1, 2)),
        ],
    }
    assert sorted(path.name for path in folder.iterdir()) == ["README.md", "expert-1", "expert-2"]
    drawn_with = build_scale_map("randopt", base, **LINEAR)
    for name, drawn in (("expert-1", search[1][2][1]), ("expert-2", search[1][0][1])):
        stored = load_file(folder / name / "adapter_model.safetensors")
        made = adapter_tensors(base, drawn, drawn_with)
        assert stored.keys() == made.keys()
        assert all(np.array_equal(stored[each], made[each]) for each in made)
    assert "| expert | 1 of 2, candidate 2 of 4 |" in (folder / "expert-1/README.md").read_text()


@pytest.mark.parametrize("noise", [LINEAR])
def test_adapters_are_of_an_ensemble_and_no_manifest(export, refusal, tmp_path):
    for option, field in ((("--rank", 1), "rank"), (("--manifest",), "adapters")):
        assert refusal(*export("--adapters", *option)).startswith(f"error: {field}: ")
    err = refusal(*export("--adapters", "--k", 3))
    assert err.startswith("error: k: the run has no ensemble K=3")
    assert not (tmp_path / "out").exists()
