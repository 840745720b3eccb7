"""Export of a candidate as a checkpoint."""

import json

import pytest

from modnorm.checkpoint.reference import resolve_checkpoint
from modnorm.checkpoint.weights import CheckpointWeights, weights_sha256
from modnorm.engines import load_engine
from modnorm.errors import ConflictError
from modnorm.perturbation.adapters import export_candidate
from modnorm.perturbation.descriptor import Descriptor
from modnorm.perturbation.methods import build_scale_map


@pytest.mark.parametrize("rank", [None, 4])
def test_an_exported_candidate_equals_the_weights_in_engines(tmp_path, rank):
    checkpoint = resolve_checkpoint("tiny-thicket")
    scale_map = build_scale_map("randopt", checkpoint, rank=rank)
    engine = load_engine("transformers", checkpoint)
    drawn = Descriptor("portable-v1", 7, "randopt", 0.01, scale_map.digest)
    with engine.candidate(drawn, scale_map) as resolved:
        held = engine.weights_sha256()
    engine.close()

    digest = export_candidate(checkpoint, resolved, scale_map, tmp_path / "model")

    assert digest == held
    stored = CheckpointWeights(resolve_checkpoint(str(tmp_path / "model")))
    assert weights_sha256(stored.layout, stored.read) == held
    assert json.loads((tmp_path / "model" / "candidate.json").read_text())["seed"] == 7
    with pytest.raises(ConflictError, match="not empty"):
        export_candidate(checkpoint, resolved, scale_map, tmp_path / "model")
