"""Seeds of sampled answers: one for each expert's answer to each training row."""

import hashlib

from modnorm.spec_limits import MAX_SEED


def harvest_seed(population_seed: int, round_number: int) -> int:
    """Return the seed of a round's answers."""
    return _seed(f"harvest/{population_seed}/{round_number}")


def sample_seed(seed: int, index: int) -> int:
    """Return the seed of one answer of one expert to all rows.

    Args:
        seed: Seed of the round's answers.
        index: Number of the answer among those of all experts.
    """
    return _seed(f"sample/{seed}/{index}")


def row_seed(seed: int, row: int) -> int:
    """Return the seed of one completion, from that of its sample and the index of its row."""
    return _seed(f"row/{seed}/{row}")


def _seed(text: str) -> int:
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big") & MAX_SEED
