"""Bounds of numbers in specs; the command line uses them without importing `modnorm.spec`."""

MAX_SEED = 2**63 - 1
MAX_TWO_SIDED_SEED = MAX_SEED // 1_000_003 - 1
"""Largest seed of MeZO and ZO-Finetuner, so that seeds of their steps fit 64 bits."""
MAX_NAME = 200
"""Most characters of a name."""
MAX_COUNT = 2**31 - 1
"""Largest count, since counts in the contracts have 32 bits."""
MAX_RANK = 512
"""Largest rank of noise: exact sums and engines that serve adapters allow no more."""
