"""Launch sizes of the kernels. None changes a weight; sums of norms follow the order they fix."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Tuning:
    """Sizes are powers of two; defaults are for Hopper and Qwen2.5-1.5B."""

    shared_table: bool = True
    """Read the quantile table from shared memory: each program stages it, so programs are large.
    Otherwise through the level-1 cache."""
    write_blocks: int = 4096
    """Counters a program that makes noise, 16 at least."""
    write_warps: int = 16
    copy_blocks: int = 1024
    """Counters a program that copies or compares."""
    copy_warps: int = 8
    statistic_lines: int = 32
    """Lines a program of a maximum or a sum of squares."""
    statistic_blocks: int = 64
    """Counters of each line at a time."""
    power_elements: int = 8192
    """Elements of a matrix at a time, in registers."""
    power_steps: int = 16
    """How many times a program takes as many."""
    power_warps: int = 8
    total_columns: int = 32
    """Columns a program that adds up what those of a pass found."""
    total_lines: int = 64
    """How many of their results at a time."""
    scratch_bytes: int = 2**30
    """Noise in memory for the power iteration; a larger matrix has as much as it needs."""
