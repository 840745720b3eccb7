"""The Makefile, with stand-ins for the programs that it starts."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from scripts.check_python import lacking

MAKEFILE = Path(__file__).parents[1] / "Makefile"
MADE_OF = ("pyproject.toml", "constraints.txt", "tests/engines/vllm/requirements.txt")
CHECK = "scripts/check_python.py"
MADE = (".venv/.setup", ".venv/.setup-dev", ".venv-vllm/.setup")


@pytest.fixture
def checkout(tmp_path):
    """A checkout whose environments are there, in a folder with a space in its name."""
    folder = tmp_path / "a lab"
    for name in (*MADE_OF, *MADE):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).touch()
    shutil.copy(MAKEFILE, folder)
    (folder / CHECK).parent.mkdir()
    shutil.copy(MAKEFILE.with_name("scripts") / "check_python.py", folder / CHECK)
    return folder


def put_python(checkout, environment, script):
    """Have a shell script for the interpreter of an environment."""
    python = checkout / environment / "bin/python"
    python.parent.mkdir()
    python.write_text(f"#!/bin/sh\n{script}\n")
    python.chmod(0o755)


def make(checkout, *arguments):
    """Run make without the variables of the make that runs the tests."""
    return subprocess.run(
        ["make", "--silent", *arguments],
        cwd=checkout,
        env={"PATH": os.environ["PATH"]},
        check=False,
        capture_output=True,
        text=True,
    )


def test_the_tests_of_vllm_run_in_a_folder_with_a_space(checkout):
    put_python(checkout, ".venv-vllm", 'echo "$VLLM_CACHE_ROOT:$VLLM_CONFIG_ROOT"')
    ran = make(checkout, "test-vllm-own")
    assert ran.returncode == 0, ran.stderr
    environment = checkout / ".venv-vllm"
    assert ran.stdout == f"{environment}/cache:{environment}/config\n"


def test_where_vllm_cannot_run_its_tests_say_so_and_fail_nothing(checkout):
    put_python(checkout, ".venv-vllm", "exit 1")
    with (checkout / CHECK).open("a") as script:
        script.write("    sys.exit('no AVX2')\n")
    for target in ("test-vllm", "setup-vllm"):
        ran = make(checkout, target)
        assert ran.returncode == 0, ran.stderr
        assert ran.stdout == f"{target} is left out: no AVX2\n"


def test_a_processor_without_what_vllm_needs_is_told_by_its_flags():
    assert not lacking("flags\t\t: fpu avx2 f16c fma")
    assert lacking("processor: 0\nflags\t\t: fpu avx f16c\n") == ["avx2", "fma"]
    assert lacking("") == ["avx2", "f16c", "fma"]


@pytest.mark.parametrize(
    ("capability", "runs"), [("AVX512", True), ("AVX512_VNNI", True), ("AVX2", False), ("", False)]
)
def test_the_tests_of_an_avx2_machine_run_where_the_machine_is_another(checkout, capability, runs):
    script = (
        f'[ "$1" = -c ] && echo {capability} || echo "$ONEDNN_MAX_CPU_ISA:$ATEN_CPU_CAPABILITY"'
    )
    put_python(checkout, ".venv", script)
    ran = make(checkout, "test-avx2")
    assert ran.returncode == 0, ran.stderr
    assert (ran.stdout == "AVX2:avx2\n") is runs
    assert ("has no AVX-512" in ran.stdout) is not runs


def test_generated_files_that_nobody_added_are_found(checkout):
    def git(*arguments):
        subprocess.run(["git", *arguments], cwd=checkout, check=True, capture_output=True)

    generated = checkout / "modnorm/v1/new_pb2.py"
    generated.parent.mkdir(parents=True)
    put_python(checkout, ".venv", f'echo generated >"{generated}"')
    git("init")
    ran = make(checkout, "proto-check")
    assert ran.returncode != 0
    assert "modnorm/v1/new_pb2.py" in ran.stderr
    git("add", "modnorm")
    assert make(checkout, "proto-check").returncode == 0
