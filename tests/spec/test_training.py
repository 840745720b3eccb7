"""Settings of training: published defaults, limits, and fields that need an adapter."""

import pytest

from modnorm.spec import TrainingSpec, parse_section
from tests.faults import error_at


def test_the_defaults_are_the_published_ones():
    training = TrainingSpec()
    assert (training.method, training.rank, training.adapter_alpha) == ("lora", 192, 384)
    assert (training.dropout, training.learning_rate, training.warmup) == (0.05, 1e-4, 0.1)
    assert (training.epochs, training.batch_size, training.schedule) == (2, 1024, "cosine")


@pytest.mark.parametrize("field", ["rank", "alpha", "dropout"])
def test_full_training_has_no_adapter(field):
    with error_at(field) as caught:
        parse_section(TrainingSpec, {"method": "full", field: 0.5 if field == "dropout" else 3})
    assert "remove this" in caught.value.message
