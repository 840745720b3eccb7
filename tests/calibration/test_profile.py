import copy
import hashlib
import json

import pytest

from modnorm.calibration.profile import Profile
from modnorm.checkpoint.reference import Checkpoint
from tests.faults import error_at

PUBLISHED = """{
  "schema_version": 2,
  "method": "recursive_modular_shell_v2",
  "model_name": "somebody/Small-Instruct",
  "dataset": "gsm8k",
  "num_layers": 1,
  "calibration": {"num_examples": 4, "learning_rate": 1e-05, "elapsed_sec": 12.50, "seed": null},
  "application": {"clip_min": 0.25, "clip_max": 4.0, "linear_policy": "analytic"},
  "layers": {"0": {
    "mlp_module": {"value": 3.1000000000000001, "median": 3.10},
    "attention_module": {"value": 17, "unit": "\\u00b7"}
  }},
  "notes": ["métis 🌳", true]
}
"""
"""A handwritten file of version 2: keys and numbers in no canonical form."""


def checkpoint(tmp_path, name="somebody/Small-Instruct", layers=2):
    config = {"num_hidden_layers": layers, "model_type": "qwen2"}
    (tmp_path / "config.json").write_text(json.dumps(config))
    (tmp_path / "model.safetensors").write_bytes(b"weights")
    return Checkpoint(name, None, tmp_path, config)


def refused(call, *fragments):
    with error_at("method.profile") as caught:
        call()
    assert caught.value.remedy
    for fragment in fragments:
        assert fragment in caught.value.message


def test_the_fingerprint_of_a_file_is_frozen(tmp_path):
    """Experiments record it, so neither a release nor the file's formatting may change it."""
    path = tmp_path / "profile.json"
    path.write_text(PUBLISHED, encoding="utf-8")
    canonical = json.dumps(json.loads(PUBLISHED), sort_keys=True, separators=(",", ":"))

    profile = Profile.load(path)

    assert profile.fingerprint == hashlib.sha256(canonical.encode()).hexdigest()[:16]
    assert profile.fingerprint == "9b83234c1b58185f"
    path.write_text(canonical)
    assert Profile.load(path).fingerprint == profile.fingerprint


def test_fields_that_are_not_interpreted_are_kept_and_digested(document):
    plain = Profile.from_content(document)
    noted = Profile.from_content({**document, "notes": ["another note"]})
    assert json.loads(noted.to_json())["notes"] == ["another note"]
    assert plain.digest != noted.digest


def test_sensitivities_are_in_layer_order(document):
    document["num_layers"] = 12
    layers = {str(i): copy.deepcopy(document["layers"]["0"]) for i in reversed(range(12))}
    for index, layer in layers.items():
        layer["mlp_module"]["value"] = 1.0 + int(index)
    document["layers"] = layers
    sensitivities = Profile.from_content(document).sensitivities
    assert [layer["mlp_module"] for layer in sensitivities] == [1.0 + i for i in range(12)]


def test_version_3_is_read_like_version_2(document):
    older = Profile.from_content(document)
    document["schema_version"] = 3
    document["layers"] = {
        index: {"metadata": {"attention_type": "full"}, "metrics": layer}
        for index, layer in document["layers"].items()
    }
    assert Profile.from_content(document).sensitivities == older.sensitivities


@pytest.mark.parametrize("value", [0, -1.0, "4", None, True])
def test_an_invalid_sensitivity_is_named_with_its_layer(document, value):
    document["layers"]["1"]["mlp_module"]["value"] = value
    refused(lambda: Profile.from_content(document), "layers.1.mlp_module.value")


@pytest.mark.parametrize("value", ["NaN", "Infinity", "1e999"])
def test_a_value_that_is_not_finite_is_refused(document, value):
    document["layers"]["1"]["mlp_module"]["value"] = 12345.0
    text = json.dumps(document).replace("12345.0", value)
    refused(lambda: Profile.from_json(text), "layers.1.mlp_module.value")


@pytest.mark.parametrize(
    ("field", "value"),
    [("schema_version", 1), ("method", "another"), ("num_layers", 0), ("model_digest", "abc")],
)
def test_a_wrong_field_is_named(document, field, value):
    document[field] = value
    refused(lambda: Profile.from_content(document), field)


def test_a_file_that_cannot_be_read_is_named(tmp_path):
    refused(lambda: Profile.load(tmp_path / "absent.json"), "absent.json")
    (tmp_path / "binary.json").write_bytes(b"\xff\xfe\x00")
    refused(lambda: Profile.load(tmp_path / "binary.json"), "binary.json")


def test_a_published_profile_matches_by_name(document, tmp_path):
    profile = Profile.from_content(document)
    profile.check_matches(checkpoint(tmp_path))
    other = checkpoint(tmp_path, "somebody/Small-Base")
    refused(lambda: profile.check_matches(other), "somebody/Small-Base")
    namesake = checkpoint(tmp_path, "elsewhere/Small-Instruct")
    refused(lambda: profile.check_matches(namesake), "elsewhere/Small-Instruct")


def test_the_name_of_a_local_copy_is_that_of_its_directory(document, tmp_path):
    profile = Profile.from_content(document)
    directory = tmp_path / "Small-Instruct"
    directory.mkdir()
    profile.check_matches(checkpoint(directory, str(directory)))
    renamed = directory.rename(tmp_path / "other")
    refused(lambda: profile.check_matches(checkpoint(renamed, str(renamed))), "Small-Instruct")


def test_the_digest_decides_if_there_is_one(document, tmp_path):
    ours = checkpoint(tmp_path, "renamed")
    Profile.from_content({**document, "model_digest": ours.digest}).check_matches(ours)
    other = Profile.from_content({**document, "model_digest": "0" * 64})
    named = checkpoint(tmp_path)
    refused(lambda: other.check_matches(named), "0" * 12, named.digest[:12])


def test_another_number_of_layers_is_refused(document, tmp_path):
    profile = Profile.from_content(document)
    refused(lambda: profile.check_matches(checkpoint(tmp_path, layers=3)), "2 layers", "3")


def test_a_profile_that_lacks_a_map_of_the_family_is_refused(document, tmp_path):
    for layer in document["layers"].values():
        del layer["mlp_residual"]
    profile = Profile.from_content(document)
    refused(lambda: profile.check_matches(checkpoint(tmp_path)), "mlp_residual")


@pytest.mark.parametrize("content", [None, 3, "", [], {}, {"layers": []}, {"layers": {"0": 1}}])
def test_other_content_is_refused(content):
    refused(lambda: Profile.from_content(content))
