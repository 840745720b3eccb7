"""A run with low-rank noise, from the spec to the exported checkpoint."""

import json

import pytest

from modnorm.checkpoint.reference import resolve_checkpoint
from modnorm.checkpoint.weights import CheckpointWeights, weights_sha256
from modnorm.cli.run import follow_to_end, submit_here
from modnorm.client.embedded import embedded_client
from modnorm.client.model_export import ranked_candidate
from modnorm.client.settings import ClientSettings
from modnorm.perturbation.exports import export_candidate
from verification.fuzz.stored import small_spec
from verification.labs.bundled_tasks import bundled_task


def make_spec(**method):
    """Return a spec that calibrates and scores two candidates on two rows."""
    return small_spec(
        task=bundled_task("countdown", selection=2, heldout=2, max_tokens=2),
        method=method,
        population={"size": 2},
        calibration={"examples": 2, "iterations": 1, "max_length": 8},
    )


@pytest.fixture(scope="module")
def client(tmp_path_factory):
    folder = tmp_path_factory.mktemp("lab")
    with embedded_client(folder, ClientSettings(cache_dir=folder / "cache")) as running:
        yield running


def test_ranks_are_candidates_of_their_own_and_can_be_exported(client, tmp_path):
    spec = make_spec(name="modular_norm", radius=1.28, rank=2)
    ended = follow_to_end(client, submit_here(client, spec))
    run = client.run(ended.id)
    assert run.spec == spec

    best = ranked_candidate(run, 1)
    assert best.scale_map.rank == 2
    out = tmp_path / "best"
    digest = export_candidate(
        resolve_checkpoint("tiny-thicket"), best.descriptor, best.scale_map, out
    )
    stored = CheckpointWeights(resolve_checkpoint(str(out)))
    assert weights_sha256(stored.layout, stored.read) == digest
    assert json.loads((out / "candidate.json").read_text())["scale_map"] == best.scale_map.digest

    other = make_spec(name="modular_norm", radius=1.28, rank=3)
    ended = follow_to_end(client, submit_here(client, other))
    second = ranked_candidate(client.run(ended.id), 1)
    assert second.scale_map.digest != best.scale_map.digest
    assert second.descriptor.coefficients != best.descriptor.coefficients
