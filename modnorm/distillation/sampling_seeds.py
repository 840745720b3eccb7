"""Seeds of a distillation: of each round's population and training, and of sampled answers.

All but the first round's are hashes. So runs of neighbouring seeds share no randomness, and a mean
over seeds has independent terms.
"""

import hashlib

from modnorm.spec_limits import MAX_SEED


def round_seed(population_seed: int, round_number: int) -> int:
    """Return the seed of a round's population: that of the spec in the first round."""
    if round_number <= 1:
        return population_seed
    return _seed(f"population/{population_seed}/{round_number}")


def training_seed(population_seed: int, round_number: int) -> int:
    """Return the seed of a round's training."""
    return _seed(f"training/{population_seed}/{round_number}")


def harvest_seed(population_seed: int, round_number: int) -> int:
    """Return the seed of a round's answers."""
    return _seed(f"harvest/{population_seed}/{round_number}")


def sample_seed(seed: int, index: int) -> int:
    """Return the seed of one answer of one expert to all rows."""
    return _seed(f"sample/{seed}/{index}")


def row_seed(seed: int, row: int) -> int:
    """Return the seed of one completion, from that of its sample and the index of its row."""
    return _seed(f"row/{seed}/{row}")


def _seed(text: str) -> int:
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big") & MAX_SEED
