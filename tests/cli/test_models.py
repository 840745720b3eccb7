"""Commands on models: their scales, and their weights in another dtype."""

import signal

import pytest

from modnorm.checkpoint.reference import resolve_checkpoint
from modnorm.checkpoint.weights import CheckpointWeights


def test_a_checkpoint_with_its_profile_gives_the_full_map(modnorm_json, tmp_path):
    profile = tmp_path / "profile.json"
    made = modnorm_json(
        "calibrate",
        *("--model", "tiny-thicket"),
        *("--task", "countdown"),
        *("--data", "bundled:countdown-selection"),
        *("--examples", 2),
        *("--out", profile),
        "--quiet",
    )
    assert made["model_digest"] == resolve_checkpoint("tiny-thicket").digest
    rows = modnorm_json(
        "scales", "--model", "tiny-thicket", "--profile", profile, "--radius", "0.32"
    )
    assert len(rows) == 8 * 7 + 2
    for row in rows.values():
        assert 0.5 <= row["correction"] <= 2
        assert row["scale"] == pytest.approx(row["base_scale"] * row["correction"])
        assert row["radius_over_scale"] == pytest.approx(0.32 / row["scale"])


@pytest.mark.parametrize("modules", ["all", "all-linear"])
def test_a_rank_leaves_vectors_without_a_scale(modnorm_json, modules):
    words = ("scales", "--model", "tiny-thicket", "--method", "randopt", "--radius", "0.5")
    full = modnorm_json(*words)
    rows = modnorm_json(*words, "--rank", 16, "--target-modules", modules)
    assert rows.keys() == full.keys()
    for name, row in rows.items():
        is_linear = row["group"] in {"attention", "mlp"}
        active = len(row["shape"]) == 2 and (is_linear or modules == "all")
        assert row["radius_over_scale"] == (full[name]["radius_over_scale"] if active else None)
        assert row["mass"] == full[name]["mass"]


@pytest.mark.parametrize(
    ("arguments", "field"),
    [
        (["--radius", "nan", "--model", "tiny-thicket"], "radius"),
        (["--radius", "1", "--model", "no-such-model"], "model.name"),
        (["--radius", "1", "--model", "tiny-thicket"], "method.profile"),
        (
            ["--radius", "1", "--model", "tiny-thicket", "--target-modules", "all-linear"],
            "target-modules",
        ),
        (
            ["--radius", "1", "--model", "tiny-thicket", "--method", "base", "--rank", "4"],
            "method.rank",
        ),
    ],
)
def test_wrong_arguments_are_named(refusal, arguments, field):
    err = refusal("scales", *arguments)
    assert err.startswith(f"error: {field}: ")


def test_a_model_whose_writing_is_ended_leaves_nothing(modnorm, tmp_path, monkeypatch):
    monkeypatch.setattr(
        "modnorm.checkpoint.writing.save_tensors",
        lambda *_, **__: signal.raise_signal(signal.SIGTERM),
    )
    out = tmp_path / "model"
    code, _, err = modnorm("cast", "--model", "tiny-thicket", "--dtype", "float16", "--out", out)
    assert (code, list(tmp_path.iterdir())) == (143, []), err


def test_a_model_is_written_in_another_dtype(modnorm_json, tmp_path):
    out = tmp_path / "model"
    said = modnorm_json("cast", "--model", "tiny-thicket", "--dtype", "float16", "--out", out)
    assert said["directory"] == str(out)
    assert str(CheckpointWeights(resolve_checkpoint(str(out))).dtype) == "torch.float16"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--dtype", "int8", "--out", "new"), "'int8' is not one of"),
        (("--dtype", "float16", "--out", "."), "is not empty"),
    ],
)
def test_what_cannot_be_written_is_refused(refusal, tmp_path, monkeypatch, arguments, message):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "note.txt").write_text("mine")
    assert message in refusal("cast", "--model", "tiny-thicket", *arguments)
