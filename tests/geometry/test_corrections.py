import math
from statistics import median

import pytest
from hypothesis import given
from hypothesis import strategies as st

from modnorm.errors import InvalidInputError
from modnorm.geometry.scales import clip, layer_relative, raw_corrections

factor = st.floats(0.25, 4)
PRE_NORM = frozenset(
    {"input_norm", "qkv", "attention_output", "post_attention_norm", "gate_up", "down"}
)
OLMO3 = frozenset(
    {
        "qkv",
        "q_norm",
        "k_norm",
        "attention_output",
        "attention_output_norm",
        "gate_up",
        "down",
        "mlp_output_norm",
    }
)
GEMMA3 = OLMO3 | {"input_norm", "pre_feedforward_norm"}


def corrections(present, gains, sensitivities, active=None):
    return raw_corrections(gains, sensitivities, present, present if active is None else active)


def gains(q, o, g, d):
    return {"qkv": q, "attention_output": o, "gate_up": g, "down": d}


@given(values=st.lists(factor, min_size=6, max_size=6))
def test_pre_norm_families_have_the_table_of_the_paper(values):
    q, o, g, d, attention, mlp = values
    phi_a, phi_f = clip(attention / (q * o), 0.25, 4), clip(mlp / (g * d), 0.25, 4)
    found = corrections(
        PRE_NORM, gains(q, o, g, d), {"attention_module": attention, "mlp_module": mlp}
    )
    assert found == pytest.approx(
        {
            "input_norm": q * phi_a * o,
            "qkv": phi_a * o,
            "attention_output": 1,
            "post_attention_norm": g * phi_f * d,
            "gate_up": phi_f * d,
            "down": 1,
        }
    )


@pytest.mark.parametrize("present", [OLMO3, GEMMA3])
@given(values=st.lists(factor, min_size=10, max_size=10))
def test_families_that_norm_outputs_compose_the_same_way(present, values):
    q, o, g, d, attention, mlp, q_norm, k_norm, a, b = values
    found = corrections(
        present,
        gains(q, o, g, d),
        {
            "attention_module": attention,
            "mlp_module": mlp,
            "q_norm": q_norm,
            "k_norm": k_norm,
            "attention_output_norm": a,
            "mlp_output_norm": b,
        },
    )
    k = max(q_norm, k_norm)
    phi_a, phi_f = clip(attention / (q * k * o), 0.25, 4), clip(mlp / (g * d), 0.25, 4)
    expected = {
        "input_norm": q * k * phi_a * o * a,
        "qkv": k * phi_a * o * a,
        "q_norm": phi_a * o * a,
        "k_norm": phi_a * o * a,
        "attention_output": a,
        "attention_output_norm": 1,
        "pre_feedforward_norm": g * phi_f * d * b,
        "gate_up": phi_f * d * b,
        "down": b,
        "mlp_output_norm": 1,
    }
    assert found == pytest.approx({role: expected[role] for role in present})


def test_tensors_without_mass_leave_the_products_but_bonds_stay():
    norms = frozenset({"input_norm", "post_attention_norm"})
    found = corrections(
        PRE_NORM, gains(2, 0.5, 3, 0.4), {"attention_module": 3, "mlp_module": 0.6}, active=norms
    )
    assert found["input_norm"] == pytest.approx(3 / (2 * 0.5))
    assert found["post_attention_norm"] == pytest.approx(0.6 / (3 * 0.4))


def test_gains_and_sensitivities_are_clipped_before_and_after():
    extreme = corrections(
        PRE_NORM, gains(0.01, 0.01, 100, 100), {"attention_module": 1e9, "mlp_module": 1e-9}
    )
    assert extreme["qkv"] == 4 * 0.25
    assert extreme["input_norm"] == 0.25 * 4 * 0.25
    assert extreme["gate_up"] == 0.25 * 4
    assert extreme["post_attention_norm"] == 4 * 0.25 * 4


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_values_that_are_not_finite_are_refused(value):
    measured = {"attention_module": 1.0, "mlp_module": 1.0}
    with pytest.raises(InvalidInputError, match="mlp_module"):
        corrections(PRE_NORM, gains(1, 1, 1, 1), {**measured, "mlp_module": value})
    with pytest.raises(InvalidInputError, match="gate_up"):
        corrections(PRE_NORM, gains(1, 1, value, 1), measured)


@given(raw=st.lists(st.floats(1e-3, 1e3), max_size=11))
def test_layer_ratios_are_relative_to_the_median_and_bounded(raw):
    ratios = layer_relative(raw)
    assert len(ratios) == len(raw)
    assert all(0.5 <= ratio <= 2 for ratio in ratios)
    if len(raw) % 2:
        assert median(ratios) == 1
