import json
import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from safetensors.torch import load_file, save_file

from modnorm.calibration.calibrate import aggregate, calibrate, load_frozen
from modnorm.calibration.maps import capture, operator_norm
from modnorm.calibration.profile import Profile
from modnorm.checkpoint.reference import resolve_checkpoint
from modnorm.errors import CancelledError
from modnorm.spec import CalibrationSpec
from tests.faults import error_at

SETTINGS = CalibrationSpec(examples=3, layers_per_example=2, max_length=6)
PROMPTS = [[3, 1, 4, 1, 5, 9, 2, 6], [2, 7, 1, 8], [1, 6, 1, 8, 0], [9, 9]]
CPU = torch.device("cpu")
pytestmark = pytest.mark.usefixtures("on_cpu")


MADE: dict[str, Profile] = {}


def profile_of(checkpoint):
    """Return the profile of a model by its digest, made once."""
    if checkpoint.digest not in MADE:
        made = calibrate(checkpoint, PROMPTS, SETTINGS, task="countdown")
        MADE[checkpoint.digest] = made
    return MADE[checkpoint.digest]


def content(profile):
    return json.loads(profile.to_json())


def test_the_same_inputs_give_the_same_bytes(small_checkpoint):
    first = calibrate(small_checkpoint, PROMPTS, SETTINGS, task="countdown")
    second = profile_of(small_checkpoint)
    assert first.to_json() == second.to_json()


def test_the_profile_records_its_origin(small_checkpoint):
    profile = profile_of(small_checkpoint)
    data = content(profile)
    assert data["schema_version"] == 2
    assert data["dataset"] == "countdown"
    assert data["model_digest"] == small_checkpoint.digest
    assert data["model_revision"] is None
    assert data["calibration"]["num_examples"] == 3
    assert data["calibration"]["precision"] == "float32"
    assert data["calibration"]["estimator_seed"] == 1729
    profile.check_matches(small_checkpoint)


def test_a_cpu_calibrates_in_float32_on_the_rounded_weights(small_model, tmp_path):
    checkpoints = []
    for dtype in (torch.bfloat16, torch.float32):
        directory = tmp_path / str(dtype)
        small_model.bfloat16().to(dtype).save_pretrained(directory)
        checkpoints.append(resolve_checkpoint(str(directory)))
    rounded, widened = (calibrate(one, PROMPTS, SETTINGS, task="countdown") for one in checkpoints)
    assert content(rounded)["calibration"]["precision"] == "float32"
    assert rounded.sensitivities == widened.sensitivities


def test_every_layer_is_measured_as_often_as_scheduled(small_checkpoint):
    data = content(profile_of(small_checkpoint))
    counts = {
        index: {metric: entry["summary"]["count"] for metric, entry in layer.items()}
        for index, layer in data["layers"].items()
    }
    assert set(counts) == {"0", "1", "2"}
    assert all(set(layer.values()) == {2} for layer in counts.values())
    assert data["global"]["final_norm"]["summary"]["count"] == 3


def test_a_value_is_the_quantile_of_the_norms_at_the_published_seeds(small_checkpoint):
    profile = profile_of(small_checkpoint)
    model = load_frozen(small_checkpoint, CPU)
    mlp = model.layers[2].get_submodule("mlp")
    logs = []
    for example in (1, 2):
        ids = torch.tensor([PROMPTS[example]])
        (call,) = capture(model.decoder, ids, [mlp])
        seed = 1729 + 100_003 * example + 101 * 2 + 4
        logs.append(math.log(operator_norm(mlp, call.hidden, seed=seed)))
    low, high = sorted(logs)
    expected = math.exp(low + 0.9 * (high - low))
    assert profile.sensitivities[2]["mlp_module"] == pytest.approx(expected, rel=1e-5)


def test_the_head_is_its_rms_gain(small_checkpoint):
    profile = profile_of(small_checkpoint)
    head = load_frozen(small_checkpoint, CPU).head
    rows, columns = head.shape
    exact = math.sqrt(columns / rows) * torch.linalg.svdvals(head)[0].item()
    gain = content(profile)["global"]["output_head"]["value"]
    assert 0.9 * exact <= gain <= exact * (1 + 1e-5)


def test_an_error_of_on_progress_ends_the_calibration(small_checkpoint):
    seen = []

    def stop(done, total):
        seen.append(done)
        raise CancelledError("enough")

    with pytest.raises(CancelledError):
        calibrate(small_checkpoint, PROMPTS, SETTINGS, task="countdown", on_progress=stop)
    assert seen == [1]


@pytest.mark.parametrize("prompt", [[], [1, -1], [1, 20]])
def test_an_unusable_prompt_is_named(small_checkpoint, prompt):
    with error_at("prompts.1"):
        calibrate(small_checkpoint, [[1], prompt], SETTINGS, task="countdown")


@pytest.mark.parametrize("prompts", [[], [[1, 2]]])
def test_too_few_prompts_are_refused(small_checkpoint, prompts):
    with error_at("calibration.examples", "without an estimate"):
        calibrate(small_checkpoint, prompts, SETTINGS, task="countdown")


def test_estimates_are_floored():
    assert aggregate([0.0], 0.9)["value"] == pytest.approx(1e-12, rel=1e-5)


@given(st.lists(st.floats(1e-6, 1e6), min_size=1, max_size=30), st.floats(0, 1))
def test_the_value_is_the_quantile_of_the_logs(estimates, quantile):
    expected = math.exp(np.quantile(np.log(estimates), quantile, method="linear"))
    assert aggregate(estimates, quantile)["value"] == pytest.approx(expected, rel=1e-4)


def test_weights_that_are_not_finite_are_named(small_checkpoint):
    path = small_checkpoint.directory / "model.safetensors"
    weights = load_file(path)
    weights["model.layers.1.mlp.down_proj.weight"][0, 0] = float("nan")
    save_file(weights, path, metadata={"format": "pt"})
    with error_at("model.name", "mlp_module of layer 1 is nan"):
        calibrate(small_checkpoint, PROMPTS, SETTINGS, task="countdown")
