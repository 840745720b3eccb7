"""The kernel on a GPU if there is one, otherwise in Triton's interpreter."""

import os
import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st

pytest.importorskip("triton", reason="no Triton for this platform")

from modnorm.noise import kernel
from modnorm.noise.portable import differs, fill_plainly, magnitudes

DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")
TABLE = torch.tensor(magnitudes(), dtype=torch.int32).to(torch.int16).to(DEVICE)
fill = partial(kernel.fill, TABLE)


@given(
    start=st.one_of(st.integers(0, 100), st.integers(2**35 - 9, 2**35 + 9)),
    rows=st.integers(1, 3),
    width=st.integers(1, 90),
    further=st.integers(0, 20),
    key=st.tuples(*[st.integers(0, 2**32 - 1)] * 2),
)
@example(start=16, rows=1, width=2 * 8 * kernel.COUNT + 24, further=0, key=(1, 2))
@settings(max_examples=40, deadline=None)
def test_the_kernel_draws_the_bits_of_the_plain_version(start, rows, width, further, key):
    ours, plain = torch.empty((2, rows, width), dtype=torch.float32, device=DEVICE)

    fill(ours, start, width + further, key)
    fill_plainly(plain, start, width + further, key)

    assert torch.equal(ours.view(torch.int32), plain.view(torch.int32))


def test_the_check_finds_a_kernel_that_is_wrong_for_one_kind_of_rows():
    assert not differs(fill, DEVICE)
    assert differs(lambda out, start, *rest: fill(out, start + (len(out) > 1), *rest), DEVICE)
    assert differs(lambda out, start, *rest: fill(out, start & ~7, *rest), DEVICE)


COMPILE = """
import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource
from modnorm.noise import kernel

for aligned, count, number in (
    (True, kernel.COUNT, "i32"),
    (True, kernel.LEAST, "i32"),
    (True, kernel.COUNT, "i64"),
    (False, kernel.FEW, "i32"),
):
    types = {"out": "*fp32", "magnitudes": "*i16", "COUNT": "constexpr", "ALIGNED": "constexpr"}
    names = kernel.noise_kernel.arg_names
    multiples = [0, 1, 4, 5, 6] if aligned else [0, 1]
    source = ASTSource(
        fn=kernel.noise_kernel,
        signature={name: types.get(name, number) for name in names},
        constexprs={(names.index("COUNT"),): count, (names.index("ALIGNED"),): aligned},
        attrs={(index,): [["tt.divisibility", 16]] for index in multiples},
    )
    options = {"num_warps": 16}
    code = triton.compile(source, target=GPUTarget("cuda", 90, 32), options=options).asm["ptx"]
    assert ("st.global.v4" in code) is aligned
    assert "ld.shared.b16" in code
"""


def test_the_kernel_compiles_for_hopper_with_wide_stores(tmp_path):
    """The interpreter accepts what the compiler does not."""
    kept = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    script = tmp_path / "compile_kernel.py"
    script.write_text(COMPILE)

    ran = subprocess.run(
        [sys.executable, script],
        env={**kept, "TRITON_CACHE_DIR": str(tmp_path)},
        cwd=Path.cwd(),
        capture_output=True,
        text=True,
        check=False,
    )

    assert ran.returncode == 0, ran.stderr
