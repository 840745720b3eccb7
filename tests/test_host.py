"""Processes of users without a home directory."""

import os
import pwd
import subprocess
import sys
from pathlib import Path

import pytest

from modnorm.client.settings import ClientSettings
from modnorm.host import expand_home
from services.common.settings import ServiceSettings, TrainerSettings
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
        lambda: ServiceSettings().students,
        lambda: TrainerSettings().trainings,
    ],
)
def test_only_what_needs_the_default_cache_needs_a_home(homeless, read):
    with error_at(CACHE, "no home"):
        read()


def test_settings_without_a_home_have_the_given_directories(homeless, tmp_path):
    assert ClientSettings(data_roots=(tmp_path,)).split_folders == (tmp_path,)
    assert ServiceSettings(cache_dir=tmp_path).students == tmp_path / "students"
    assert ServiceSettings(student_dir=tmp_path).students == tmp_path


def test_the_home_of_no_user_is_refused():
    with error_at("profile", "~nosuchuser"):
        expand_home(Path("~nosuchuser/x"), "profile")


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["validate", "spec.yaml"], 0, f"note: {CACHE}: it is not set, and this user has no home"),
        (["run", "spec.yaml"], 2, f"error: {CACHE}: it is not set, and this user has no home"),
        (["data", "fetch", "gsm8k"], 2, f"error: {CACHE}: it is not set"),
        (["data", "fetch", "gsm8k", "--to", "~nosuchuser/x"], 2, "error: to: ~nosuchuser/x: "),
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
