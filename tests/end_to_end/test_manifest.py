"""What is exported from a finished run: a manifest, what is rebuilt from it, a candidate."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoModelForCausalLM, PreTrainedTokenizerFast

from modnorm import load_run
from modnorm.checkpoint.reference import resolve_checkpoint
from modnorm.checkpoint.weights import CheckpointWeights, weights_sha256
from modnorm.errors import InvalidInputError
from modnorm.prediction.manifest import encode_manifest, read_ensemble_manifest
from modnorm.tasks import get_stored_task


@pytest.fixture(scope="module")
def written(modnorm, finished, tmp_path_factory):
    path = tmp_path_factory.mktemp("manifest") / "ensemble.json"
    modnorm("export", finished, "--manifest", "--n", 4, "--k", 2, "--out", path)
    return path


@pytest.fixture
def manifest(written, tmp_path):
    return Path(shutil.copy(written, tmp_path))


def test_a_manifest_is_small_and_round_trips(manifest, finished):
    assert manifest.stat().st_size < 32_768
    read = read_ensemble_manifest(manifest)
    assert encode_manifest(read) == manifest.read_bytes()
    run = load_run(finished)
    assert read.ensemble.indices == run.ensemble(4, 2).experts
    assert read.ensemble.scale_map == run.scale_map()
    for expert in read.ensemble.experts:
        ((_, descriptor),) = run.descriptors(expert.index)
        assert expert.descriptor == descriptor
    assert "question" in read.prompt.question


def test_rebuilt_checkpoints_have_the_digests_of_the_manifest(modnorm, manifest, tmp_path):
    ended = modnorm("rebuild", manifest, "--out", tmp_path / "experts", "--json")
    told = json.loads(ended.stdout)["weights_sha256"]
    assert tuple(told.values()) == read_ensemble_manifest(manifest).weights_sha256
    for name, digest in told.items():
        stored = CheckpointWeights(resolve_checkpoint(str(tmp_path / "experts" / name)))
        assert weights_sha256(stored.layout, stored.read) == digest
        card = (tmp_path / "experts" / name / "README.md").read_text()
        assert "tokenizer = PreTrainedTokenizerFast.from_pretrained" in card
    assert not ended.stderr


def test_a_manifest_predicts_as_its_run_does(modnorm, manifest, finished):
    questions = finished / "rows" / "heldout.jsonl"
    by_manifest = modnorm("predict", manifest, "--input", questions)
    by_run = modnorm("predict", finished, "--n", 4, "--k", 2, "--input", questions)
    assert by_manifest.stdout == by_run.stdout
    refused = modnorm("predict", manifest, "--k", 3, "--input", questions, check=False)
    assert refused.stderr.startswith("error: k: the manifest has no such ensemble")


DELETED = object()
FIRST = "ensemble.experts.0"
OTHER_DESCRIPTOR = f"{FIRST}.descriptor: has another SHA-256 than the manifest states"


def change(manifest, path, value):
    """Set or delete the value at a dotted path of a manifest."""
    content = json.loads(manifest.read_text())
    *steps, last = (int(step) if step.isdigit() else step for step in path.split("."))
    place = content
    for step in steps:
        place = place[step]
    if value is DELETED:
        del place[last]
    else:
        place[last] = value
    manifest.write_text(json.dumps(content))


@pytest.mark.parametrize(
    ("path", "value", "told"),
    [
        ("ensemble.task", DELETED, "task"),
        ("ensemble.model_digest", "7", "another digest, or model"),
        ("ensemble.scale_map.tensors.0", DELETED, "another digest"),
        ("ensemble.scale_map.tensors.0.mass", DELETED, "scale_map: "),
        ("ensemble.scale_map.tensors.0.mass", float("nan"), "scale_map: "),
        (f"{FIRST}.descriptor.coefficients", "?", "coefficients"),
        ("weights_sha256.0", DELETED, "digests of each expert"),
        (f"{FIRST}.descriptor.coefficients", None, "0.descriptor.coefficients: must be given"),
        (f"{FIRST}.descriptor.coefficients", DELETED, "0.descriptor.coefficients: must be given"),
        (f"{FIRST}.descriptor.lineage", "7", "experts.0.descriptor.lineage: must be empty"),
        (f"{FIRST}.index", -1, "experts.0.index: must be at least 0"),
        ("format", DELETED, "format: must be given"),
        ("format", "modnorm-ensemble-2", "only modnorm-ensemble-3"),
        ("descriptors_sha256.0", DELETED, "digests of each expert"),
        (f"{FIRST}.descriptor.seed", 7, OTHER_DESCRIPTOR),
        (f"{FIRST}.descriptor.coefficients.0", 0.1, OTHER_DESCRIPTOR),
        (f"{FIRST}.descriptor.coefficients.0", float("nan"), OTHER_DESCRIPTOR),
        (f"{FIRST}.descriptor.coefficients.0", DELETED, OTHER_DESCRIPTOR),
    ],
)
def test_what_is_no_manifest_is_refused(manifest, path, value, told):
    change(manifest, path, value)
    with pytest.raises(InvalidInputError, match="is no manifest of an ensemble") as caught:
        read_ensemble_manifest(manifest)
    assert told in caught.value.message


@pytest.mark.parametrize(
    ("path", "value", "told"),
    [
        ("prompt.question.question", "7?", "makes another prompt here"),
        (f"{FIRST}.descriptor.seed", 7, OTHER_DESCRIPTOR),
    ],
)
def test_nothing_is_predicted_or_served_from_a_changed_manifest(
    modnorm, manifest, finished, path, value, told
):
    change(manifest, path, value)
    questions = finished / "rows" / "heldout.jsonl"
    for command in (("predict", manifest, "--input", questions), ("serve", manifest)):
        refused = modnorm(*command, check=False)
        assert refused.returncode == 2
        assert told in refused.stderr


def test_an_export_answers_in_transformers_as_the_run_did(modnorm, finished, tmp_path):
    """Sums of floats differ in their order, so a near tie may be decided otherwise."""
    modnorm("export", finished, "--rank", 1, "--out", tmp_path / "best")
    run = load_run(finished)
    spec, (expert,) = run.spec, run.ensemble(4, 1).experts
    task = get_stored_task(spec.task.name, scorer=None, declaration=None)
    tokenizer = PreTrainedTokenizerFast.from_pretrained(tmp_path / "best")
    model: Any = AutoModelForCausalLM.from_pretrained(tmp_path / "best", dtype=torch.float32)
    equal = []
    for answer in run.answers(expert, "heldout"):
        row = json.loads(run.rows("heldout")[answer.row])
        messages = [
            {"role": turn.role, "content": turn.content} for turn in task.messages(task.parse(row))
        ]
        prompt = tokenizer.apply_chat_template(
            messages, add_generation_prompt=True, tokenize=False
        )
        asked = tokenizer(str(prompt), add_special_tokens=False, return_tensors="pt").input_ids
        tokens = model.generate(asked, max_new_tokens=spec.task.max_tokens, do_sample=False)
        completion = tokens[0, asked.shape[1] :]
        equal.append(tokenizer.decode(completion, skip_special_tokens=True) == answer.completion)
    assert len(equal) > 1
    assert sum(equal) >= len(equal) - 1
