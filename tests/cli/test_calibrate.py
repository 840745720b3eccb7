"""`modnorm calibrate`, which may take minutes: it tells how far it is, and what a stop loses."""

import pytest

from modnorm.calibration import calibrate as calibration


@pytest.fixture
def calibrate(modnorm, tmp_path):
    """Calibrate on two prompts; returns exit code, stdout, stderr and the profile's file."""

    def call(*options):
        out = tmp_path / "profile.json"
        ended = modnorm(
            *("calibrate", "--model", "tiny-thicket", "--task", "countdown"),
            *("--data", "bundled:countdown-selection", "--examples", 2, "--out", out),
            *options,
        )
        return *ended, out

    return call


def test_one_that_is_broken_off_says_that_nothing_is_kept(calibrate, monkeypatch):
    def broken_off(*_, on_progress, **__):
        on_progress(1, 2)
        raise KeyboardInterrupt

    monkeypatch.setattr(calibration, "calibrate", broken_off)
    code, _, err, out = calibrate()
    assert code == 130
    assert err.endswith("\nstopped; nothing was written, the same command starts again\n")
    assert not out.exists()
