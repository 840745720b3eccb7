"""`modnorm prepare`, which takes minutes: it tells how far it is, and what a stop loses."""

import json
import resource
from contextlib import contextmanager
from types import SimpleNamespace

import pytest

from modnorm.client import preparing

ROW = {"numbers": [3, 5, 7], "target": 15, "solution": "3 + 5 + 7"}


@contextmanager
def small_disk():
    """Let no file grow past some bytes."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (200, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


@pytest.fixture
def prepare(modnorm, tmp_path):
    """Prepare on one puzzle; returns exit code, stdout, stderr and the generator's file."""

    def call(*options):
        rows, out = tmp_path / "rows.jsonl", tmp_path / "generator.json"
        rows.write_text(json.dumps(ROW))
        command = ("prepare", "--model", "tiny-thicket", "--data", rows, "--epochs", 2)
        return *modnorm(*command, "--out", out, *options), out

    return call


def test_without_a_terminal_lines_tell_how_far_it_is(prepare):
    code, told, err, out = prepare()
    assert code == 0, err
    lines = err.splitlines()
    assert lines[0] == "tiny-thicket: preparing, 1/2"
    assert lines[1].startswith("tiny-thicket: preparing, 2/2, ")
    assert told.endswith(f"  {out}\n")
    assert out.exists()


def test_a_seed_that_no_generator_takes_is_refused(prepare):
    code, _, err, out = prepare("--seed", 2**63)
    assert code == 2
    assert "--seed" in err
    assert not out.exists()


def test_a_generator_that_does_not_fit_leaves_the_old_one(prepare, tmp_path, monkeypatch):
    old = tmp_path / "generator.json"
    old.write_text("old")
    made = SimpleNamespace(text="new " * 100, digest="d")
    monkeypatch.setattr(preparing, "prepare_generator", lambda *_, **__: made)
    with small_disk():
        code, _, err, _ = prepare()
    assert code == 1
    assert "File too large" in err
    assert old.read_text() == "old"


def test_one_that_is_broken_off_says_that_nothing_is_kept(prepare, monkeypatch):
    def broken_off(*_, on_batch, **__):
        on_batch(1, 2)
        raise KeyboardInterrupt

    monkeypatch.setattr(preparing, "prepare_generator", broken_off)
    code, _, err, out = prepare()
    assert code == 130
    assert err.endswith("\nstopped; nothing was written, the same command starts again\n")
    assert not out.exists()
