"""The generator compared with literal networks, and its preparation on a small model."""

import json
from dataclasses import replace

import pytest
import torch
from transformers import Qwen2Config, Qwen2ForCausalLM

from modnorm.baselines import preparation as module
from modnorm.baselines.generator import Generator, propose
from modnorm.baselines.preparation import Example, PreparationSettings, prepare
from modnorm.baselines.updates import normaliser, tensor_weights, zo_step
from modnorm.checkpoint.families import physical_layout
from modnorm.errors import InvalidInputError

CONFIG = Qwen2Config(
    vocab_size=40,
    hidden_size=16,
    intermediate_size=24,
    num_hidden_layers=1,
    num_attention_heads=2,
    num_key_value_heads=1,
    tie_word_embeddings=True,
    max_position_embeddings=64,
)
LAYOUT = physical_layout(CONFIG.to_dict())
EXAMPLES = [
    Example(tuple(range(1, 4 + index)), (5 + index, 6 + index, 7 + index)) for index in range(6)
]
SETTINGS = PreparationSettings(epochs=2, batch=4, cycle=1, max_length=11)


def make_model():
    torch.manual_seed(3)
    return Qwen2ForCausalLM(CONFIG)


def state_of(model):
    return {name: value.detach().clone() for name, value in model.named_parameters()}


def test_amplitudes_are_those_of_one_network_a_tensor():
    generator = Generator(LAYOUT, seed=7)
    inner_weights = generator.inner.detach()
    assert -(5**-0.5) <= inner_weights.min() < -0.4 < 0.4 < inner_weights.max() <= 5**-0.5
    features = torch.randn((len(LAYOUT), 5), generator=torch.Generator().manual_seed(1))

    found = generator(features)

    for place in range(len(LAYOUT)):
        inner, outer = torch.nn.Linear(5, 64), torch.nn.Linear(64, 1)
        with torch.no_grad():
            inner.weight.copy_(generator.inner[place])
            inner.bias.copy_(generator.inner_bias[place])
            outer.weight.copy_(generator.outer[place][None])
            outer.bias.copy_(generator.outer_bias[place][None])
        expected = outer(inner(features[place]).tanh()).abs()
        assert found[place].item() == pytest.approx(expected.item(), abs=1e-6)


def test_a_proposal_depends_on_the_state_and_on_the_last_step():
    generator = Generator(LAYOUT, seed=7)
    moments = [(0.1 * place, 1.0) for place in range(len(LAYOUT))]
    raw, scale = propose(generator, moments, ())

    shapes = {tensor.name: tensor.shape for tensor in LAYOUT}
    assert scale == normaliser(raw, tensor_weights(shapes))
    step = zo_step(1, 0.5, 0.25, raw=raw, scale=scale, epsilon=1e-3, rate=1e-6)
    assert propose(generator, moments, [step])[0] != raw
    assert propose(generator, [(9.0, 9.0), *moments[1:]], ())[0][1:] == raw[1:]


def test_a_generator_round_trips_and_belongs_to_its_model():
    generator = Generator(LAYOUT, seed=7)
    text = generator.to_json({"seed": 7})

    again = Generator.from_json(text, LAYOUT)

    assert again.to_json({"seed": 7}) == text
    assert not any(parameter.requires_grad for parameter in again.parameters())
    with pytest.raises(InvalidInputError, match="other tensors"):
        Generator.from_json(text, LAYOUT[1:])
    broken = json.loads(text)
    broken["weights"]["outer"] = broken["weights"]["outer"][:-8]
    with pytest.raises(InvalidInputError, match="not the weights"):
        Generator.from_json(json.dumps(broken), LAYOUT)
    with torch.no_grad():
        again.outer[0, 0] = torch.nan
    with pytest.raises(InvalidInputError, match="not finite"):
        Generator.from_json(again.to_json({}), LAYOUT)
    for text in ("{}", "[1]"):
        with pytest.raises(InvalidInputError, match=r"not a generator: [^\n]*$"):
            Generator.from_json(text, LAYOUT)
    for text in ("[]", generator.to_json({"rate": 0.5}).replace("0.5", "NaN")):
        with pytest.raises(InvalidInputError, match="not a generator"):
            Generator.from_json(text, LAYOUT)


def test_the_meta_gradient_touches_only_the_generator(monkeypatch):
    model, seen, steps = make_model(), [], []
    before = state_of(model)

    def leave_the_model(self, batch, optimiser, rate):
        steps.append((len(batch), rate))
        seen.append(
            all(value.grad is None for value in model.parameters())
            and all(torch.equal(value, before[name]) for name, value in model.named_parameters())
        )

    monkeypatch.setattr(module._Preparation, "_train_model", leave_the_model)
    fresh = Generator(LAYOUT, seed=SETTINGS.seed)
    learned = prepare(model, LAYOUT, EXAMPLES, replace(SETTINGS, rate=1e6))

    assert seen == [True] * 4
    assert steps == [(4, 1e-5), (2, 0.5e-5)] * 2  # the rate falls linearly in each cycle
    changed = [
        name
        for name, parameter in learned.named_parameters()
        if not torch.equal(parameter, dict(fresh.named_parameters())[name])
    ]
    assert changed == ["inner", "inner_bias", "outer", "outer_bias"]


def test_the_meta_gradient_is_that_of_the_step_of_mezo():
    """Compare with finite differences of the loss after the step, along one amplitude."""
    work = module._Preparation(make_model().double(), LAYOUT, SETTINGS)
    work._generator.double()
    base = {name: value.detach().clone() for name, value in work._weights.items()}
    omega = tensor_weights({tensor.name: tensor.shape for tensor in LAYOUT}, 4)
    start = torch.linspace(0.5, 1.5, len(LAYOUT), dtype=torch.float64)
    scale = normaliser(start.tolist(), omega)

    def loss_at(raw):
        directions = work._directions(11, raw * scale)
        return work._loss(EXAMPLES[:2], work._moved(directions, -1e-2))

    raw = start.clone().requires_grad_()
    (gradient,) = torch.autograd.grad(loss_at(raw), raw)
    for place in range(0, len(LAYOUT), 3):
        step = torch.zeros_like(start)
        step[place] = 0.03
        with torch.no_grad():
            slope = (loss_at(start + step) - loss_at(start - step)) / 0.06
        assert gradient[place].item() == pytest.approx(slope.item(), rel=0.02)
    work._train_model(EXAMPLES[:2], work._reset(), rate=0.0)
    assert all(torch.equal(base[name], value) for name, value in work._weights.items())


def test_a_preparation_is_repeatable_and_restores_the_model():
    model, progress = make_model(), []
    before = state_of(model)

    first = prepare(
        model, LAYOUT, EXAMPLES, SETTINGS, on_batch=lambda *counts: progress.append(counts)
    )
    second = prepare(make_model(), LAYOUT, EXAMPLES, SETTINGS)

    assert first.to_json({}) == second.to_json({})
    with pytest.raises(InvalidInputError, match="more than 10"):
        prepare(model, LAYOUT, EXAMPLES, replace(SETTINGS, max_length=10))
    other = prepare(make_model(), LAYOUT, EXAMPLES, replace(SETTINGS, seed=39))
    assert other.to_json({}) != first.to_json({})
    assert progress == [(1, 4), (2, 4), (3, 4), (4, 4)]
    assert all(torch.equal(value, before[name]) for name, value in model.named_parameters())
    assert all(value.grad is None for value in model.parameters())


def test_a_preparation_with_dropout_is_repeatable_and_keeps_the_global_generator():
    model = make_model()
    for attention in (layer.self_attn for layer in model.model.layers):
        attention.attention_dropout = 0.5
    torch.manual_seed(1)
    first = prepare(model, LAYOUT, EXAMPLES, SETTINGS)
    drawn = torch.rand(1)
    torch.manual_seed(2)
    assert prepare(model, LAYOUT, EXAMPLES, SETTINGS).to_json({}) == first.to_json({})
    torch.manual_seed(1)
    assert torch.equal(torch.rand(1), drawn)
    assert first.to_json({}) != prepare(make_model(), LAYOUT, EXAMPLES, SETTINGS).to_json({})


def test_prompts_and_padding_are_not_targets():
    inputs = module._padded(EXAMPLES[:2], torch.device("cpu"))

    assert inputs["labels"].tolist() == [
        [-100, -100, -100, 5, 6, 7, -100],
        [-100, -100, -100, -100, 6, 7, 8],
    ]
    assert inputs["attention_mask"].tolist() == [[1] * 6 + [0], [1] * 7]
