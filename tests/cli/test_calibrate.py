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


def test_without_a_terminal_lines_tell_how_far_it_is(calibrate, monkeypatch):
    monkeypatch.setattr("modnorm.cli.progress._LINE_SECONDS", 0.0)
    code, told, err, out = calibrate()
    assert code == 0, err
    lines = err.splitlines()
    assert lines[0] == "tiny-thicket: calibrating, 0/2"
    assert lines[1].startswith("tiny-thicket: calibrating, 1/2, ")
    assert "ETA" in lines[1]
    assert lines[2].startswith("tiny-thicket: calibrating, 2/2, ")
    assert told.endswith(f"  {out}\n")
    assert out.exists()


def test_one_that_is_broken_off_says_that_nothing_is_kept(calibrate, monkeypatch):
    def broken_off(*_, on_progress, **__):
        on_progress(1, 2)
        raise KeyboardInterrupt

    monkeypatch.setattr(calibration, "calibrate", broken_off)
    code, _, err, out = calibrate()
    assert code == 130
    assert err.endswith("\nstopped; nothing was written, the same command starts again\n")
    assert not out.exists()
