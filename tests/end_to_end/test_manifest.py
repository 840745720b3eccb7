"""The manifest of a finished run's ensemble, and what is rebuilt from it."""

import json
import shutil
from pathlib import Path

import pytest

from modnorm import load_run
from modnorm.checkpoint.reference import resolve_checkpoint
from modnorm.checkpoint.weights import CheckpointWeights, weights_sha256
from modnorm.errors import InvalidInputError
from modnorm.prediction.manifest import encode_manifest, read_ensemble_manifest


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
        assert "tokenizer = AutoTokenizer.from_pretrained" in card
    assert not ended.stderr


def test_a_manifest_predicts_as_its_run_does(modnorm, manifest, finished):
    questions = finished / "rows" / "heldout.jsonl"
    by_manifest = modnorm("predict", manifest, "--input", questions)
    by_run = modnorm("predict", finished, "--n", 4, "--k", 2, "--input", questions)
    assert by_manifest.stdout == by_run.stdout
    refused = modnorm("predict", manifest, "--k", 3, "--input", questions, check=False)
    assert refused.stderr.startswith("error: k: the manifest has no such ensemble")


def change(path, edit):
    content = json.loads(path.read_text())
    edit(content)
    path.write_text(json.dumps(content))


def tensors(content):
    return content["ensemble"]["scale_map"]["tensors"]


def first_descriptor(content):
    return content["ensemble"]["experts"][0]["descriptor"]


@pytest.mark.parametrize(
    ("edit", "told"),
    [
        (lambda content: content["ensemble"].pop("task"), "task"),
        (lambda content: content["ensemble"].update(model_digest="7"), "another digest, or model"),
        (lambda content: content["ensemble"]["scale_map"]["tensors"].pop(), "another digest"),
        (
            lambda content: content["ensemble"]["scale_map"]["tensors"][0].pop("mass"),
            "scale_map: ",
        ),
        (
            lambda content: content["ensemble"]["experts"][0]["descriptor"].update(
                coefficients="?"
            ),
            "coefficients",
        ),
        (lambda content: content["weights_sha256"].pop(), "each expert's weights"),
        (
            lambda content: first_descriptor(content).update(coefficients=None),
            "experts.0.descriptor.coefficients: must be given",
        ),
        (
            lambda content: first_descriptor(content).pop("coefficients"),
            "experts.0.descriptor.coefficients: must be given",
        ),
        (
            lambda content: first_descriptor(content).update(lineage="7"),
            "experts.0.descriptor.lineage: must be empty",
        ),
        (
            lambda content: content["ensemble"]["experts"][0].update(index=-1),
            "experts.0.index: must be at least 0",
        ),
        (lambda content: content.pop("format"), "format: must be given"),
        (lambda content: content.update(format="modnorm-ensemble-1"), "only modnorm-ensemble-2"),
    ],
)
def test_what_is_no_manifest_is_refused(manifest, edit, told):
    change(manifest, edit)
    with pytest.raises(InvalidInputError, match="is no manifest of an ensemble") as caught:
        read_ensemble_manifest(manifest)
    assert told in caught.value.message


def test_nothing_is_predicted_or_served_with_other_prompts(modnorm, manifest, finished):
    change(manifest, lambda content: content["prompt"]["question"].update(question="7?"))
    questions = finished / "rows" / "heldout.jsonl"
    for command in (("predict", manifest, "--input", questions), ("serve", manifest)):
        refused = modnorm(*command, check=False)
        assert refused.returncode == 2
        assert "makes another prompt here" in refused.stderr
