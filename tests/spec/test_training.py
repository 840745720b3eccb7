"""Settings of training: published defaults, limits, and fields that need an adapter."""

import pytest
from pydantic import ValidationError

from modnorm.spec import TrainingSpec, parse_section
from tests.faults import error_at


def test_the_defaults_are_the_published_ones():
    training = TrainingSpec()
    assert (training.method, training.rank, training.adapter_alpha) == ("lora", 192, 384)
    assert (training.dropout, training.learning_rate, training.warmup) == (0.05, 1e-4, 0.1)
    assert (training.epochs, training.batch_size, training.schedule) == (2, 1024, "cosine")


def test_alpha_follows_the_rank_unless_it_is_given():
    assert TrainingSpec(rank=8).adapter_alpha == 16
    assert TrainingSpec(rank=8, alpha=8).adapter_alpha == 8


@pytest.mark.parametrize("field", ["rank", "alpha", "dropout"])
def test_full_training_has_no_adapter(field):
    with error_at(field) as caught:
        parse_section(TrainingSpec, {"method": "full", field: 0.5 if field == "dropout" else 3})
    assert "remove this" in caught.value.message


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("rank", 0),
        ("rank", True),
        ("dropout", 1.0),
        ("learning_rate", 0),
        ("warmup", 1.0),
        ("epochs", 0),
        ("batch_size", 0),
        ("max_length", 1),
        ("checkpoint_steps", 0),
        ("method", "qlora"),
        ("optimizer", "sgd"),
    ],
)
def test_values_beyond_the_limits_are_refused(field, value):
    with pytest.raises(ValidationError):
        TrainingSpec.model_validate({field: value})


def test_a_spec_survives_its_json():
    training = TrainingSpec(method="full", epochs=1.5, max_length=64)
    assert TrainingSpec.model_validate_json(training.model_dump_json()) == training
