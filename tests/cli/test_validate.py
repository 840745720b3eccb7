"""What `validate` finds out about a model, as `run` does before it starts."""

import json
import shutil

import httpx
import pytest
import yaml
from huggingface_hub import constants
from huggingface_hub.errors import RepositoryNotFoundError

from modnorm.checkpoint.reference import resolve_checkpoint


@pytest.fixture
def spec(spec_file):
    """Change the model and sections of the spec that `init` writes; returns its file."""

    def write(model="tiny-thicket", **sections):
        content = yaml.safe_load(spec_file.read_text()) | {"model": str(model)}
        changed = {name: content.get(name, {}) | fields for name, fields in sections.items()}
        spec_file.write_text(yaml.safe_dump(content | changed))
        return spec_file

    return write


@pytest.fixture
def hub(monkeypatch, tmp_path):
    """Let the Hub answer by an error, or accept the model; the cache is empty."""

    def answer(error=None):
        def metadata(url, **_):
            if error is not None:
                raise error
            return url

        monkeypatch.setattr("modnorm.checkpoint.hub.get_hf_file_metadata", metadata)

    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
    return answer


def test_a_local_model_needs_a_tokenizer_and_a_template(refusal, printed, spec, tmp_path):
    model = tmp_path / "model"
    shutil.copytree(resolve_checkpoint("tiny-thicket").directory, model)
    file = spec(model)
    assert printed("validate", file) == f"{file}: valid\n"
    (model / "chat_template.jinja").unlink()
    assert f"model.name: {model} has no chat template (" in refusal("validate", file)
    (model / "tokenizer.json").unlink()
    assert f"model.name: {model} has no usable tokenizer: none of" in refusal("validate", file)


@pytest.mark.parametrize("content", ["{}", "[]", "another"])
def test_a_profile_that_does_not_fit_is_refused(content, refusal, spec, tmp_path):
    profile = tmp_path / "profile.json"
    if content == "another":
        layer = {"attention_module": {"value": 1.0}, "mlp_module": {"value": 1.0}}
        content = json.dumps(
            {
                "schema_version": 2,
                "method": "recursive_modular_shell_v2",
                "model_name": "another",
                "num_layers": 1,
                "application": {},
                "layers": {"0": layer},
            }
        )
    profile.write_text(content)
    file = spec(method={"profile": str(profile)})
    assert "method.profile: " in refusal("validate", file)
    assert "method.profile: " in refusal("run", file)


def test_a_model_that_the_hub_lacks_is_refused(refusal, spec, hub):
    response = httpx.Response(404, request=httpx.Request("HEAD", "https://huggingface.co"))
    hub(RepositoryNotFoundError("not there", response=response))
    file = spec("some/absent")
    for command in ("validate", "run"):
        assert "model.name: the Hugging Face Hub refuses some/absent" in refusal(command, file)


def test_a_hub_out_of_reach_is_no_fault_of_the_spec(modnorm, modnorm_json, spec, hub):
    hub(httpx.ConnectError("no network"))
    file = spec("some/model")
    reason = "cannot fetch some/model from the Hugging Face Hub: no network"
    code, _, err = modnorm("validate", file)
    assert (code, err) == (0, f"note: {reason}; a run on this machine would fail\n")
    assert modnorm_json("validate", file)[0]["obstacles"] == [reason]


@pytest.mark.parametrize("name", ["file", "file/inside/cache", "link"])
def test_a_cache_that_cannot_be_written_is_found_before_any_work(
    modnorm, modnorm_json, refusal, spec, tmp_path, monkeypatch, name
):
    (tmp_path / "file").write_text("")
    (tmp_path / "link").symlink_to(tmp_path / "absent")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MODNORM_CACHE_DIR", str(tmp_path / name))
    place = tmp_path / name.partition("/")[0]
    fault = f"MODNORM_CACHE_DIR: cannot write {tmp_path / name}: {place} is no directory"
    file = spec()
    code, _, err = modnorm("validate", file)
    assert (code, err) == (0, f"note: {fault}; a run on this machine would fail\n")
    assert modnorm_json("validate", file)[0]["obstacles"] == [fault]
    heldout = ("--heldout", "bundled:countdown-development")
    for words in (("run",), ("match",), ("tune", "--radii", "0.1", *heldout)):
        err = refusal(words[0], file, *words[1:])
        assert err == f"error: {fault} (set it to a directory that can be written)\n"
    assert not list(tmp_path.glob("runs/*"))


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"task": {"max_tokens": 2000}}, " and 2000 completion tokens exceed the 2048 positions"),
        ({"engine": {"max_model_len": 64}}, "engine.max_model_len: the longest prompt has "),
        ({"engine": {"name": "auto", "tensor_parallel_size": 8}}, "engine.tensor_parallel_size: "),
    ],
)
def test_what_a_run_refuses_at_its_start_is_refused(change, told, refusal, spec):
    assert told in refusal("validate", spec(**change))


def test_truncated_weights_are_refused(refusal, spec, tmp_path):
    model = tmp_path / "model"
    shutil.copytree(resolve_checkpoint("tiny-thicket").directory, model)
    weights = model / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-1000])
    assert "model.safetensors" in refusal("validate", spec(model))


def test_rows_that_repeat_another_are_counted(modnorm, spec, tmp_path):
    rows = tmp_path / "rows.jsonl"
    rows.write_text('{"numbers": [1, 2, 3, 4], "target": 10}\n' * 3)
    file = spec(task={"heldout": str(rows)})
    told = "note: 2 of 3 held-out rows repeat the prompt of another\n"
    assert modnorm("validate", file) == (0, f"{file}: valid\n", told)


def test_a_calibration_with_fewer_rows_than_asked_is_told(modnorm, spec):
    file = spec(calibration={"examples": 4000})
    told = "note: calibration.examples is 4000: only 64 selection rows exist\n"
    assert modnorm("validate", file) == (0, f"{file}: valid\n", told)
