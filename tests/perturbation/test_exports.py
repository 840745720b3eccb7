"""Export of a candidate or of a trained state as a checkpoint."""

import json

import pytest

from modnorm.baselines.updates import es_step
from modnorm.checkpoint.prompts import PromptEncoder
from modnorm.checkpoint.reference import resolve_checkpoint
from modnorm.checkpoint.weights import CheckpointWeights, weights_sha256
from modnorm.engines import load_engine
from modnorm.errors import ConflictError, IncompatibleError
from modnorm.perturbation.descriptor import Descriptor
from modnorm.perturbation.exports import export_candidate, export_state
from modnorm.perturbation.lineage import Lineage
from modnorm.perturbation.methods import build_scale_map


@pytest.fixture
def lineage(checkpoint):
    return Lineage(checkpoint.digest, "portable-v1", steps=(es_step((1, 2), (0.0, 1.0), 0.2),))


def test_an_exported_state_equals_the_weights_in_engines(checkpoint, lineage, tmp_path):
    digest = export_state(checkpoint, lineage, tmp_path / "model")

    exported = resolve_checkpoint(str(tmp_path / "model"))
    stored = CheckpointWeights(exported)
    assert weights_sha256(stored.layout, stored.read) == digest
    engine = load_engine("transformers", checkpoint)
    engine.rebase(lineage)
    assert engine.weights_sha256() == digest
    engine.close()
    assert exported.digest != checkpoint.digest
    assert PromptEncoder(exported).stop_ids == PromptEncoder(checkpoint).stop_ids
    written = json.loads((tmp_path / "model" / "lineage.json").read_text())
    assert written == json.loads(lineage.to_json())


def test_a_foreign_lineage_or_used_directory_is_refused(checkpoint, lineage, tmp_path):
    with pytest.raises(IncompatibleError, match="is of model 000"):
        export_state(checkpoint, Lineage("0" * 64, "portable-v1"), tmp_path / "model")
    (tmp_path / "note.txt").write_text("mine")
    with pytest.raises(ConflictError, match="not empty"):
        export_state(checkpoint, lineage, tmp_path)


@pytest.mark.parametrize("rank", [None, 4])
def test_an_exported_candidate_equals_the_weights_in_engines(checkpoint, tmp_path, rank):
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
