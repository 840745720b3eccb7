import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from modnorm.checkpoint.families import physical_layout
from modnorm.geometry.tensor_roles import base_scales, classify, tensor_masses
from modnorm.spec import Masses
from tests.faults import error_at

masses = st.floats(1e-3, 1e3)


def layout(model_type="qwen2", layers=3, *, tied=True, bias=False):
    return physical_layout(
        {
            "model_type": model_type,
            "hidden_size": 8,
            "intermediate_size": 12,
            "num_hidden_layers": layers,
            "num_attention_heads": 4,
            "num_key_value_heads": 2,
            "vocab_size": 16,
            "tie_word_embeddings": tied,
            "attention_bias": bias,
            "mlp_bias": bias,
        }
    )


@given(
    layers=st.integers(1, 6),
    tied=st.booleans(),
    bias=st.booleans(),
    totals=st.builds(Masses, embedding=masses, attention=masses, mlp=masses, norm=masses),
)
def test_each_present_group_gets_its_total(layers, tied, bias, totals):
    tensors = layout("llama", layers, tied=tied, bias=bias)
    roles, found = classify(tensors), tensor_masses(classify(tensors), totals)
    for group, total in totals.model_dump().items():
        share = math.fsum(m for r, m in zip(roles, found, strict=True) if r.group == group)
        present = any(role.group == group for role in roles)
        assert share == pytest.approx(total if present else 0)
        assert present == (group != "other" and not (group == "head" and tied))


def test_a_mass_too_small_for_a_finite_scale_is_refused():
    roles = classify(layout())
    with error_at("method.masses"):
        base_scales(tensor_masses(roles, Masses(norm=1e-310)))
    assert None not in base_scales(tensor_masses(roles, Masses(norm=1e-290)))
