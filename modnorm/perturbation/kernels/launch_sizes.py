"""Launch sizes of the kernels; they fix the summation order of norms and change no weight."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class LaunchSizes:
    """Sizes are powers of two; defaults are for Hopper and Qwen2.5-1.5B."""

    shared_table: bool = True
    """Copy the quantile table to shared memory, once a program, so programs are large.

    Otherwise it is read through the level-1 cache.
    """
    write_blocks: int = 4096
    """Counters a program that generates noise, at least 16."""
    write_warps: int = 16
    product_blocks: int = 512
    """Counters a program that multiplies factors, whose sums of 64 bits take registers."""
    product_warps: int = 8
    copy_blocks: int = 1024
    """Counters a program that copies or compares."""
    copy_warps: int = 8
    statistic_lines: int = 32
    """Lines a program of a maximum or a sum of squares."""
    statistic_blocks: int = 64
    """Counters of each line in one iteration."""
    power_elements: int = 8192
    """Elements of a matrix in registers, in one iteration."""
    power_steps: int = 16
    """Iterations of a program of the power iteration."""
    power_warps: int = 8
    total_columns: int = 32
    """Columns a program that sums the partial results of a pass."""
    total_lines: int = 64
    """Partial results in one iteration of that program."""
    scratch_bytes: int = 2**30
    """Memory for the noise of the power iteration; a larger matrix gets what it needs."""
