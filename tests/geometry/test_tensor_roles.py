import pytest

from modnorm.checkpoint.families import Part, PhysicalTensor
from modnorm.errors import InvalidInputError
from modnorm.geometry.scale_map import Norm
from modnorm.geometry.tensor_roles import classify


def tensor(name, *shape):
    return PhysicalTensor(name, shape, (Part(name, shape[0] if shape else 1),))


def role_of(name, *shape):
    (role,) = classify((tensor(name, *shape),))
    return role


@pytest.mark.parametrize(
    ("name", "shape", "expected"),
    [
        ("model.embed_tokens.weight", (9, 4), ("embedding", "embedding", None, 1, Norm.MAX_ROW)),
        ("lm_head.weight", (9, 4), ("head", "output_head", None, 1, Norm.SPECTRAL)),
        ("model.norm.weight", (4,), ("norm", "final_norm", None, 1, Norm.MAX_ABS)),
        (
            "model.layers.7.self_attn.qkv_proj.weight",
            (8, 4),
            ("attention", "qkv", 7, 3, Norm.SPECTRAL),
        ),
        ("model.layers.7.self_attn.qkv_proj.bias", (8,), ("attention", "qkv", 7, 3, Norm.MAX_ABS)),
        (
            "model.layers.12.self_attn.o_proj.weight",
            (4, 4),
            ("attention", "attention_output", 12, 1, Norm.SPECTRAL),
        ),
        (
            "model.layers.0.mlp.gate_up_proj.weight",
            (12, 4),
            ("mlp", "gate_up", 0, 2, Norm.SPECTRAL),
        ),
        ("model.layers.0.mlp.down_proj.weight", (4, 6), ("mlp", "down", 0, 1, Norm.SPECTRAL)),
        (
            "model.layers.0.input_layernorm.weight",
            (4,),
            ("norm", "input_norm", 0, 1, Norm.MAX_ABS),
        ),
        (
            "model.layers.0.post_attention_layernorm.weight",
            (4,),
            ("norm", "post_attention_norm", 0, 1, Norm.MAX_ABS),
        ),
    ],
)
def test_tensors_have_their_place_in_the_paper_tables(name, shape, expected):
    role = role_of(name, *shape)
    assert (role.group, role.role, role.layer, role.multiplicity, role.norm) == expected
    assert role.module == name.rsplit(".", 1)[0]


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
