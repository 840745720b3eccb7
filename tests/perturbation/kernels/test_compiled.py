"""The kernels as machine code for Hopper, which needs Triton but no GPU."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("triton", reason="no Triton for this platform")


@pytest.fixture(scope="module")
def code(tmp_path_factory):
    """Kernel -> counts; compiled in a process without the interpreter."""
    cache = str(tmp_path_factory.mktemp("triton"))
    kept = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    run = subprocess.run(
        [sys.executable, Path(__file__).parent / "compiled.py"],
        env={**kept, "TRITON_CACHE_DIR": cache},
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 0, run.stderr
    return json.loads(run.stdout)


def test_nothing_that_writes_weights_fuses_multiply_and_add(code):
    writers = [name for name in code if name.startswith("write") and name != "write fused"]

    assert len(writers) == 3
    assert {name: code[name]["FFMA"] for name in writers} == dict.fromkeys(writers, 0)
    assert code["write fused"]["FFMA"] > 0


def test_large_tensors_are_moved_in_wide_accesses_without_spilling(code):
    for name in ("write", "write rows", "fill", "restore", "compare"):
        assert code[name]["stack"] == 0, name
    for name in ("write", "write rows", "restore", "compare"):
        assert code[name]["LDG.E.128"] > 0, name
    for name in ("write", "write rows", "fill", "restore"):
        assert code[name]["STG.E.128"] > 0, name


def test_the_quantile_table_is_read_from_shared_memory(code):
    assert code["write rows"]["LDS.U16"] > 0
    assert code["write unaligned"]["LDS.U16"] == 0
