"""Which profile a matching uses again."""

from types import SimpleNamespace

import pytest

from modnorm.calibration import calibrate as calibration
from modnorm.calibration.profile import Profile
from modnorm.checkpoint.reference import resolve_checkpoint
from modnorm.client import matching
from modnorm.client.settings import ClientSettings


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
