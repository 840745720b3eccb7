"""Bounds of the numbers in specs, which the command line states without loading the spec."""

MAX_SEED = 2**63 - 1
MAX_TWO_SIDED_SEED = MAX_SEED // 1_000_003 - 1
"""Largest seed of a run with two sides: seeds of its steps are 64-bit integers."""
MAX_COUNT = 2**31 - 1
"""Largest count of anything: the contracts carry counts in 32 bits."""
