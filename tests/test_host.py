"""Hosts without a home directory, with names that are not UTF-8, or with an old processor."""

import os
import pwd
import subprocess
import sys
from pathlib import Path

import pytest

from modnorm.client.run_directory import hold
from modnorm.client.settings import ClientSettings
from modnorm.host import expand_home, is_utf8
from modnorm.services.common.settings import ServiceSettings
from scripts.check_python import lacking
from tests.faults import error_at

CACHE = "MODNORM_CACHE_DIR"
COMMAND = """
import pwd, sys
pwd.getpwuid = {}.__getitem__
from modnorm.cli import main
main()
"""


@pytest.fixture
def homeless(monkeypatch):
    """Have no HOME, and no entry among the users."""
    monkeypatch.delenv("HOME", raising=False)
    monkeypatch.setattr(pwd, "getpwuid", {}.__getitem__)


@pytest.mark.parametrize(
    "read",
    [
        lambda: ClientSettings().cache,
        lambda: ClientSettings().fetched_folder,
        lambda: ClientSettings().check_cache(),
        lambda: ServiceSettings().cache,
    ],
)
def test_only_what_needs_the_default_cache_needs_a_home(homeless, read):
    with error_at(CACHE, "no home"):
        read()


def test_the_home_of_no_user_is_refused():
    with error_at("profile", "~nosuchuser"):
        expand_home(Path("~nosuchuser/x"), "profile")


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["validate", "spec.yaml"], 0, f"note: {CACHE}: it is not set, and this user has no home"),
        (["run", "spec.yaml"], 2, f"error: {CACHE}: it is not set, and this user has no home"),
    ],
)
def test_a_command_without_a_home_works_or_names_the_setting(tmp_path, arguments, code, said):
    environment = {name: value for name, value in os.environ.items() if name != "HOME"}
    begin = [sys.executable, "-c", COMMAND]
    ran = [
        subprocess.run(
            [*begin, *each],
            check=False,
            cwd=tmp_path,
            env=environment,
            capture_output=True,
            text=True,
        )
        for each in (["init", "spec.yaml"], arguments)
    ]
    assert [each.returncode for each in ran] == [0, code]
    assert ran[1].stderr.startswith(said)
    assert [path.name for path in tmp_path.rglob("*") if path.is_file()] == ["spec.yaml"]


BAD = os.fsdecode(b"\xff")


@pytest.mark.parametrize(
    ("text", "encoding", "expected"),
    [
        ("a b", "utf-8", True),
        ("\u00e9\u65e5", "utf-8", True),
        (BAD, "utf-8", False),
        ("a b", "latin-1", True),
        ("\u00e9", "latin-1", False),
        ("\u65e5".encode().decode("latin-1"), "latin-1", False),
    ],
)
def test_texts_of_other_encodings_are_known(monkeypatch, text, encoding, expected):
    monkeypatch.setattr(os, "fsencode", lambda name: name.encode(encoding, "surrogateescape"))
    assert is_utf8(text) is expected


@pytest.mark.parametrize("arguments", [["run", "spec.yaml", "--out", BAD], ["validate", BAD]])
def test_a_path_that_is_not_utf8_is_refused_before_the_work(tmp_path, arguments):
    command = [sys.executable, "-m", "modnorm", *arguments]
    ran = subprocess.run(command, cwd=tmp_path, capture_output=True, check=False)
    assert ran.returncode == 2
    assert ran.stderr.startswith(b"error: argument %d is not UTF-8" % len(arguments))


def test_a_directory_inside_one_that_is_not_utf8_is_no_place_for_a_run(tmp_path):
    (tmp_path / BAD).mkdir()
    with error_at("out", "not UTF-8"), hold(tmp_path / BAD / "run"):
        pass
    assert not list((tmp_path / BAD).iterdir())


def test_output_does_not_fail_on_a_character(tmp_path):
    (tmp_path / "runs").mkdir()
    environment = os.environ | {"PYTHONIOENCODING": "latin-1:strict"}
    command = [sys.executable, "-m", "modnorm", "validate", "\u65e5\u672c"]
    ran = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, check=False)
    assert ran.returncode == 2
    assert b"\\u65e5\\u672c" in ran.stderr


def test_a_processor_without_what_vllm_needs_is_told_by_its_flags():
    assert not lacking("flags\t\t: fpu avx2 f16c fma")
    assert lacking("processor: 0\nflags\t\t: fpu avx f16c\n") == ["avx2", "fma"]
    assert lacking("") == ["avx2", "f16c", "fma"]
