"""The conformance suite of all engines."""

from collections.abc import Callable, Sequence
from contextlib import closing, suppress
from dataclasses import replace

import pytest

from modnorm.baselines.updates import es_step
from modnorm.checkpoint.checkpoint_files import positive
from modnorm.checkpoint.families import physical_layout
from modnorm.checkpoint.prompts import PromptEncoder
from modnorm.checkpoint.reference import Checkpoint, resolve_checkpoint
from modnorm.checkpoint.weights import CheckpointWeights, weights_sha256
from modnorm.checkpoint.writing import write_checkpoint
from modnorm.engines import Completion, Engine, Finish, GenerationLimits, Sampling
from modnorm.errors import (
    CancelledError,
    CandidateError,
    IncompatibleError,
    InvalidInputError,
    PreconditionError,
)
from modnorm.geometry.scale_map import ScaleMap
from modnorm.perturbation.descriptor import Descriptor
from modnorm.perturbation.lineage import Lineage
from modnorm.perturbation.methods import build_scale_map
from modnorm.tasks.protocol import Message
from tests.engines.independent_candidates import independent_sha256, independent_state, lineage_of

LIMITS = GenerationLimits(max_tokens=12)
Prompts = Sequence[Sequence[int]]
Draw = Callable[..., Descriptor]


def answers(
    engine: Engine, prompts: Prompts, limits: GenerationLimits = LIMITS
) -> list[Completion]:
    with closing(engine.generate(prompts, limits)) as completions:
        return sorted(completions, key=lambda completion: completion.index)


def sampled(temperature: float, seeds: Sequence[int]) -> GenerationLimits:
    return GenerationLimits(LIMITS.max_tokens, Sampling(temperature, seeds))


def test_sampled_completions_depend_on_their_seeds(
    engine: Engine, prompts: Prompts, request: pytest.FixtureRequest
) -> None:
    asked = [prompts[0]] * 6
    if "with drafts" in request.node.name:
        with pytest.raises(InvalidInputError, match="drafts"):
            answers(engine, asked, sampled(1.5, range(6)))
        return
    first = answers(engine, asked, sampled(1.5, [1, 2, 3, 1, 2, 3]))
    texts = [completion.text for completion in first]
    assert texts[:3] == texts[3:]
    assert len(set(texts)) > 1
    assert answers(engine, asked, sampled(1.5, [1, 2, 3, 1, 2, 3])) == first
    likeliest = Sampling(1.5, [1, 2, 3, 1, 2, 3], top_p=1e-6)
    narrow = answers(engine, asked, GenerationLimits(LIMITS.max_tokens, likeliest))
    assert [completion.text for completion in narrow] == [
        completion.text for completion in answers(engine, asked, LIMITS)
    ]
    other = answers(engine, asked, sampled(1.5, [4, 5, 6, 7, 8, 9]))
    assert [completion.text for completion in other] != texts


def test_layout_and_identity_are_those_of_the_checkpoint(
    engine: Engine, checkpoint: Checkpoint
) -> None:
    assert engine.layout == physical_layout(checkpoint.config)
    assert engine.model_digest == checkpoint.digest
    assert {"engine", "device"} <= set(engine.environment)


def test_base_outside_a_candidate(
    engine: Engine, checkpoint: Checkpoint, scale_map: ScaleMap, draw: Draw
) -> None:
    stored = CheckpointWeights(checkpoint)
    base = weights_sha256(stored.layout, stored.read)
    assert engine.weights_sha256() == base
    with engine.candidate(draw(scale_map, 1), scale_map):
        assert engine.weights_sha256() != base
    assert engine.weights_sha256() == base


@pytest.mark.parametrize("seed", [0, 2**31 - 1])
def test_candidate_is_a_function_of_its_descriptor(
    engine: Engine, checkpoint: Checkpoint, scale_map: ScaleMap, seed: int, draw: Draw
) -> None:
    descriptor = draw(scale_map, seed)
    expected, resolved = independent_sha256(checkpoint, descriptor, scale_map)
    with engine.candidate(descriptor, scale_map) as held:
        assert engine.weights_sha256() == expected
        assert held.coefficients is not None
    with engine.candidate(resolved, scale_map) as held:
        assert engine.weights_sha256() == expected
        assert held == resolved


def test_base_descriptor_changes_nothing(
    engine: Engine, make_scale_map: Callable[[str], ScaleMap], draw: Draw
) -> None:
    scale_map = make_scale_map("base")
    before = engine.weights_sha256()
    with engine.candidate(draw(scale_map, 0, radius=0.0), scale_map):
        assert engine.weights_sha256() == before


def test_a_state_is_a_function_of_its_lineage(
    engine: Engine, checkpoint: Checkpoint, scale_map: ScaleMap, draw: Draw
) -> None:
    lineage, base = lineage_of(checkpoint), engine.weights_sha256()
    state = independent_state(checkpoint)
    polls: list[None] = []
    engine.rebase(lineage.until(1))
    engine.rebase(lineage, poll=lambda: polls.append(None))
    assert polls
    state.rebase(lineage)
    trained = state.sha256()
    assert engine.weights_sha256() == trained != base
    for found, expected in zip(engine.moments(), state.moments(), strict=True):
        assert found == pytest.approx(expected, abs=1e-6)
    around = replace(draw(scale_map, 7), lineage=lineage.digest)
    with engine.candidate(around, scale_map):
        state.apply(around, scale_map)
        assert engine.weights_sha256() == state.sha256() != trained
    assert engine.weights_sha256() == trained
    engine.rebase(None)
    assert engine.weights_sha256() == base


@pytest.fixture(scope="module")
def relative(checkpoint: Checkpoint, tmp_path_factory: pytest.TempPathFactory) -> Checkpoint:
    """A checkpoint of the same architecture with other weights."""
    stored = CheckpointWeights(checkpoint)
    weights = {tensor.name: stored.read(tensor).flip(0) for tensor in stored.layout}
    directory = tmp_path_factory.mktemp("relative") / "model"
    write_checkpoint(stored, weights, {}, directory)
    return resolve_checkpoint(str(directory))


def test_a_replaced_model_is_held_as_if_loaded(
    engine: Engine, checkpoint: Checkpoint, relative: Checkpoint, prompts: Prompts, draw: Draw
) -> None:
    whole, before = engine.weights_sha256(), answers(engine, prompts)
    engine.replace_model(relative)
    try:
        assert engine.model_digest == relative.digest
        assert engine.weights_sha256() == independent_state(relative).sha256()
        assert answers(engine, prompts) != before
        scale_map = build_scale_map("randopt", relative)
        descriptor = draw(scale_map, 11)
        expected, _ = independent_sha256(relative, descriptor, scale_map)
        with engine.candidate(descriptor, scale_map):
            assert engine.weights_sha256() == expected
        engine.rebase(lineage_of(relative))
        engine.rebase(None)
        assert engine.weights_sha256() == independent_state(relative).sha256()
    finally:
        engine.rebase(None)
        engine.replace_model(checkpoint)
    assert engine.weights_sha256() == whole
    assert answers(engine, prompts) == before


def test_only_a_model_of_the_same_architecture_replaces_another(
    engine: Engine, checkpoint: Checkpoint, make_llama: Callable[..., Checkpoint]
) -> None:
    before = engine.weights_sha256()
    with pytest.raises(IncompatibleError, match="another configuration"):
        engine.replace_model(make_llama(num_hidden_layers=1))
    assert (engine.model_digest, engine.weights_sha256()) == (checkpoint.digest, before)


def test_a_held_candidate_keeps_the_model(
    engine: Engine, relative: Checkpoint, scale_map: ScaleMap, draw: Draw
) -> None:
    with (
        engine.candidate(draw(scale_map, 3), scale_map),
        pytest.raises(PreconditionError, match="candidate"),
    ):
        engine.replace_model(relative)


def test_a_candidate_of_another_base_is_refused(
    engine: Engine, checkpoint: Checkpoint, scale_map: ScaleMap, draw: Draw
) -> None:
    before = engine.weights_sha256()
    around = replace(draw(scale_map, 7), lineage=lineage_of(checkpoint).digest)
    with (
        pytest.raises(IncompatibleError, match="is drawn around the state"),
        engine.candidate(around, scale_map),
    ):
        pass
    with pytest.raises(IncompatibleError, match="of model"):
        engine.rebase(Lineage("0" * 64, "portable-v1"))
    with engine.candidate(draw(scale_map, 7), scale_map), pytest.raises(PreconditionError):
        engine.rebase(None)
    assert engine.weights_sha256() == before


def test_one_candidate_at_a_time(engine: Engine, scale_map: ScaleMap, draw: Draw) -> None:
    with engine.candidate(draw(scale_map, 1), scale_map):
        inside = engine.weights_sha256()
        with pytest.raises(PreconditionError), engine.candidate(draw(scale_map, 2), scale_map):
            pass
        assert engine.weights_sha256() == inside


def test_an_exception_restores_the_base(engine: Engine, scale_map: ScaleMap, draw: Draw) -> None:
    before = engine.weights_sha256()
    with pytest.raises(ZeroDivisionError), engine.candidate(draw(scale_map, 1), scale_map):
        raise ZeroDivisionError
    assert engine.weights_sha256() == before
    with engine.candidate(draw(scale_map, 1), scale_map):
        pass


def test_scale_map_of_another_model_is_refused(
    engine: Engine, scale_map: ScaleMap, draw: Draw
) -> None:
    foreign = replace(scale_map, model_digest="0" * 64)
    before = engine.weights_sha256()
    with pytest.raises(IncompatibleError), engine.candidate(draw(foreign, 1), foreign):
        pass
    assert engine.weights_sha256() == before


def test_scale_map_that_the_candidate_was_not_drawn_with_is_refused(
    engine: Engine, scale_map: ScaleMap, draw: Draw
) -> None:
    other = replace(scale_map, tensors=scale_map.tensors[:-1])
    with pytest.raises(IncompatibleError), engine.candidate(draw(scale_map, 1), other):
        pass
    with pytest.raises(IncompatibleError), engine.candidate(draw(other, 1), other):
        pass


def test_every_prompt_is_answered_once_within_the_cap(engine: Engine, prompts: Prompts) -> None:
    done = answers(engine, prompts)
    assert [completion.index for completion in done] == list(range(len(prompts)))
    for completion in done:
        assert 1 <= completion.tokens <= LIMITS.max_tokens
        if completion.finish is Finish.LENGTH:
            assert completion.tokens == LIMITS.max_tokens


@pytest.mark.parametrize("checkpoint", ["bundled"], indirect=True)
def test_a_stop_token_ends_a_completion(engine: Engine, checkpoint: Checkpoint) -> None:
    encoder = PromptEncoder(checkpoint)
    prompt = encoder.encode((Message("user", "What is 1 + 1?"),))
    (done,) = answers(engine, [prompt], GenerationLimits(256))
    assert done.finish is Finish.STOP
    assert done.text
    assert "<|im_end|>" not in done.text


@pytest.mark.parametrize("checkpoint", ["bundled"], indirect=True)
def test_a_stop_token_that_is_not_special_is_no_part_of_the_text(
    engine: Engine, checkpoint: Checkpoint, prompts: Prompts, monkeypatch: pytest.MonkeyPatch
) -> None:
    encoder = PromptEncoder(checkpoint)
    (whole,) = answers(engine, prompts[1:2], GenerationLimits(256))
    blank = encoder.encode_text(" ")
    inside = engine._encoder  # type: ignore[attr-defined]  # what it reads stop tokens from
    monkeypatch.setattr(inside, "stop_ids", frozenset(blank))
    (done,) = answers(engine, prompts[1:2], GenerationLimits(256))
    assert done.finish is Finish.STOP
    assert whole.text.startswith(f"{done.text} ")
    assert done.text == done.text.rstrip()


def test_the_same_request_gives_the_same_answers(
    engine: Engine, prompts: Prompts, scale_map: ScaleMap, draw: Draw
) -> None:
    before = answers(engine, prompts)
    for seed in range(5):
        with engine.candidate(draw(scale_map, seed), scale_map):
            answers(engine, prompts[:2], GenerationLimits(4))
    assert answers(engine, prompts) == before


def test_candidates_answer_differently(
    engine: Engine, prompts: Prompts, scale_map: ScaleMap, draw: Draw
) -> None:
    base = answers(engine, prompts)
    with engine.candidate(draw(scale_map, 5, radius=0.1), scale_map):
        assert answers(engine, prompts) != base


def test_a_rebuilt_candidate_gives_the_same_answers(
    engine: Engine, prompts: Prompts, scale_map: ScaleMap, draw: Draw
) -> None:
    with engine.candidate(draw(scale_map, 9), scale_map) as resolved:
        first = answers(engine, prompts)
    with engine.candidate(resolved, scale_map):
        assert answers(engine, prompts) == first


def test_closing_aborts_and_leaves_no_trace(
    engine: Engine, checkpoint: Checkpoint, prompts: Prompts
) -> None:
    engine.rebase(None)  # an earlier test may have left a state
    before = answers(engine, prompts)
    with closing(engine.generate(prompts, LIMITS)) as completions:
        next(completions)
        engine.rebase(None)  # changes nothing
        with pytest.raises(PreconditionError, match="request"):
            engine.rebase(lineage_of(checkpoint))
    assert answers(engine, prompts) == before


def test_poll_aborts_before_the_first_answer(engine: Engine, prompts: Prompts) -> None:
    polls = 0

    def poll() -> None:
        nonlocal polls
        polls += 1
        if polls == 3:
            raise CancelledError("enough")

    before = answers(engine, prompts)
    with (
        pytest.raises(CancelledError),
        closing(engine.generate(prompts, GenerationLimits(100), poll=poll)) as completions,
    ):
        list(completions)
    assert polls == 3
    assert answers(engine, prompts) == before


def test_a_candidate_with_nan_fails_after_its_request_was_closed(
    engine: Engine, prompts: Prompts, scale_map: ScaleMap, draw: Draw
) -> None:
    before, base = answers(engine, prompts), engine.weights_sha256()
    polls: list[None] = []

    def poll() -> None:
        polls.append(None)
        if len(polls) > 3:
            raise CancelledError("enough")

    with (
        pytest.raises(CandidateError, match="not finite"),
        engine.candidate(draw(scale_map, 1, radius=1e18), scale_map),
        suppress(CancelledError),
        closing(engine.generate(prompts, LIMITS, poll=poll)) as completions,
    ):
        list(completions)
    assert engine.weights_sha256() == base
    assert answers(engine, prompts) == before


def test_a_base_with_nan_does_not_affect_the_next(
    engine: Engine, checkpoint: Checkpoint, prompts: Prompts
) -> None:
    before = answers(engine, prompts)
    engine.rebase(
        Lineage(checkpoint.digest, "portable-v1", steps=(es_step((1, 2), (0.0, 1.0), 1e38),))
    )
    with pytest.raises(CandidateError, match="not finite"):
        answers(engine, prompts)
    engine.rebase(None)
    assert answers(engine, prompts) == before


def test_prompts_that_cannot_be_answered_are_refused(
    engine: Engine, checkpoint: Checkpoint
) -> None:
    with pytest.raises(InvalidInputError, match="no tokens"):
        engine.generate([[5], []], LIMITS)
    with pytest.raises(InvalidInputError, match=r"row 1|prompts\.1"):
        engine.generate([[5], [5] * checkpoint.max_position], LIMITS)
    for token in (positive(checkpoint.config, "vocab_size"), -1):
        with pytest.raises(InvalidInputError, match=f"token {token}, "):
            engine.generate([[5], [5, token]], LIMITS)
    assert list(engine.generate([], LIMITS)) == []
