"""Compile every kernel with real launch sizes, for a GPU that this machine may lack.

    python tests/perturbation/kernels/compiled.py

Prints a JSON object: kernel -> registers, bytes of stack, and how often some instructions occur.
The interpreter accepts what the compiler does not; this finds it.
"""

import json
import re
import subprocess
import tempfile
from pathlib import Path

import triton
import triton.language as tl
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from modnorm.perturbation.kernels import weight_kernels
from modnorm.perturbation.kernels.launch import EXACT, LaunchSizes

TARGET = GPUTarget("cuda", 90, 32)
SIZES = LaunchSizes()
TYPES = {"tiles": "*i32", "differs": "*i32", "views": "*i64", "keys": "*i64", "magnitudes": "*i16"}
INSTRUCTIONS = ("FFMA", "LDG.E.128", "STG.E.128", "LDS.U16", "STL")


def compiled(kernel, warps, options=None, **constants):
    """Return properties of one kernel's machine code."""
    names = list(enumerate(kernel.arg_names))
    types = {name: TYPES.get(name, "*fp32") for _, name in names}
    source = ASTSource(
        fn=kernel,
        signature={name: "constexpr" if name in constants else types[name] for _, name in names},
        constexprs={(index,): constants[name] for index, name in names if name in constants},
        attrs={
            (index,): [["tt.divisibility", 16]]
            for index, name in names
            if name not in constants and types[name].startswith("*")
        },
    )
    options = {"num_warps": warps, **(options or {})}
    binary = triton.compile(source, target=TARGET, options=options).asm["cubin"]
    code, usage = _tool("nvdisasm", "-c -ndf", binary), _tool("cuobjdump", "-res-usage", binary)
    return {
        "registers": int(re.findall(r"REG:(\d+)", usage)[0]),
        "stack": int(re.findall(r"STACK:(\d+)", usage)[0]),
        **{name: len(re.findall(rf"\s{re.escape(name)}\b", code)) for name in INSTRUCTIONS},
    }


def _tool(name, options, binary):
    program = Path(triton.__file__).parent / "backends/nvidia/bin" / name
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(binary)
        file.flush()
        command = [program, *options.split(), file.name]
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def write(dtype=tl.bfloat16, *, rows=True, aligned=True, options=EXACT):
    count = SIZES.write_blocks if aligned else SIZES.write_blocks // 8
    return compiled(
        weight_kernels.write_kernel, SIZES.write_warps, options,
        DTYPE=dtype, COUNT=count, ROWS=rows, ALIGNED=aligned, SHARED=aligned,
    )  # fmt: skip


def fill():
    return compiled(
        weight_kernels.fill_kernel, SIZES.write_warps,
        COUNT=SIZES.write_blocks, ROWS=False, ALIGNED=True, SHARED=True,
    )  # fmt: skip


def copies(kernel):
    return compiled(
        kernel, SIZES.copy_warps,
        BITS=tl.int16, COUNT=SIZES.copy_blocks, ROWS=False, ALIGNED=True,
    )  # fmt: skip


def main():
    kernels = {
        "write": write(rows=False),
        "write rows": write(),
        "write unaligned": write(tl.float32, aligned=False),
        "write fused": write(options={}),
        "fill": fill(),
        "restore": copies(weight_kernels.restore_kernel),
        "compare": copies(weight_kernels.compare_kernel),
    }
    print(json.dumps(kernels))  # noqa: T201 - the output of a program


if __name__ == "__main__":
    main()
