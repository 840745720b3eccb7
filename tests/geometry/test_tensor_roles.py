import pytest

from modnorm.checkpoint.families import Part, PhysicalTensor
from modnorm.errors import InvalidInputError
from modnorm.geometry.tensor_roles import classify


def tensor(name, *shape):
    return PhysicalTensor(name, shape, (Part(name, shape[0] if shape else 1),))


def role_of(name, *shape):
    (role,) = classify((tensor(name, *shape),))
    return role


def test_post_attention_norm_is_an_output_norm_if_branches_norm_their_outputs():
    layer = "model.layers.0"
    roles = classify(
        tuple(
            tensor(f"{layer}.{module}.weight", 4)
            for module in (
                "self_attn.q_norm",
                "self_attn.k_norm",
                "post_attention_layernorm",
                "pre_feedforward_layernorm",
                "post_feedforward_layernorm",
            )
        )
    )
    assert [role.role for role in roles] == [
        "q_norm",
        "k_norm",
        "attention_output_norm",
        "pre_feedforward_norm",
        "mlp_output_norm",
    ]


@pytest.mark.parametrize(
    "name",
    [
        "model.layers.0.mlp.router.weight",
        "model.layers.0.self_attn.sinks",
        "visual.patch_embed.weight",
        "model.layers.x.mlp.down_proj.weight",
        "model.embed_tokens",
    ],
)
def test_an_unknown_tensor_is_named(name):
    with pytest.raises(InvalidInputError, match=name):
        role_of(name, 4, 4)
