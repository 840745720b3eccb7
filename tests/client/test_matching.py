"""Which profile a matching uses again."""

from types import SimpleNamespace
from typing import cast

import pytest

from modnorm.artifact_store import ArtifactStore
from modnorm.calibration import calibrate as calibration
from modnorm.calibration.profile import Profile
from modnorm.checkpoint.reference import resolve_checkpoint
from modnorm.client import matching
from modnorm.client.settings import ClientSettings
from modnorm.spec import MethodSpec


@pytest.mark.parametrize(("precision", "calibrations"), [("float32", 1), ("bfloat16", 2)])
def test_a_profile_of_another_precision_is_calibrated_again(
    precision, calibrations, spec, tmp_path, monkeypatch
):
    made = []

    def calibrate(*_, **__):
        made.append(1)
        return SimpleNamespace(to_json=lambda: f"[{len(made)}]")

    monkeypatch.setattr(matching, "calibrate", calibrate)
    monkeypatch.setattr(Profile, "from_json", lambda text: text)
    client = ClientSettings(cache_dir=tmp_path)
    for one in ("float32", precision):
        monkeypatch.setattr(calibration, "calibration_precision", lambda *_, one=one: one)
        matching._calibrated(spec, resolve_checkpoint("tiny-thicket"), [[1, 2]], client, None)
    profiles = list((tmp_path / "profiles").glob("*.json"))
    assert len(made) == len(profiles) == calibrations


@pytest.mark.parametrize("digits", [16, 64], ids=["fingerprint", "digest"])
def test_a_stored_profile_is_named_by_fingerprint_or_digest(digits, spec, tmp_path, monkeypatch):
    stored = cast("Profile", SimpleNamespace(check_matches=lambda _: None))
    monkeypatch.setattr(Profile, "from_json", {"{}": stored}.get)
    name = ArtifactStore(tmp_path / "profiles").put("key", "{}")[:digits]
    method = MethodSpec(name="modular_norm", radius=0.1, profile=name)
    named, client = spec.model_copy(update={"method": method}), ClientSettings(cache_dir=tmp_path)
    checkpoint = resolve_checkpoint("tiny-thicket")
    assert matching._profile(named, checkpoint, [], client, None) is stored
