"""The conformance suite for parking candidates in the middle of a request."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from typing import Any

import pytest

from modnorm.checkpoint.reference import Checkpoint
from modnorm.engines import Completion, Engine, GenerationLimits
from modnorm.errors import CancelledError, EngineError, PreconditionError
from modnorm.geometry.scale_map import ScaleMap
from modnorm.perturbation.descriptor import Descriptor
from tests.engines.independent_candidates import lineage_of

LIMITS = GenerationLimits(max_tokens=24)
Prompts = Sequence[Sequence[int]]
Draw = Callable[..., Descriptor]


def answers(engine: Engine, prompts: Prompts) -> list[Completion]:
    with closing(engine.generate(prompts, LIMITS)) as completions:
        return sorted(completions, key=lambda completion: completion.index)


def parked_after(engine: Engine, steps: int, between: Callable[[], object]) -> Callable[[], None]:
    """Return a poll that parks the candidate once, after so many decode steps."""
    polls = 0

    def poll() -> None:
        nonlocal polls
        polls += 1
        if polls == steps + 1:
            with engine.parked():
                between()

    return poll


@pytest.mark.parametrize("steps", [0, 2, 17])
def test_a_parked_candidate_continues_unchanged(
    engine: Engine, prompts: Prompts, scale_map: ScaleMap, draw: Draw, steps: int
) -> None:
    if steps > 2 and engine.environment.get("drafts", "none") != "none":
        pytest.skip("with drafts of the same answers the request ends earlier")
    first, second = (draw(scale_map, seed, radius=0.1) for seed in (5, 6))
    with engine.candidate(second, scale_map):
        other = answers(engine, prompts)
    with engine.candidate(first, scale_map):
        undisturbed, digest = answers(engine, prompts), engine.weights_sha256()
    base = engine.weights_sha256()
    between: list[object] = []

    def answer_others() -> None:
        between.append(engine.weights_sha256())
        with engine.candidate(second, scale_map):
            between.append(answers(engine, prompts))

    poll = parked_after(engine, steps, answer_others)
    with engine.candidate(first, scale_map):
        said = sorted(engine.generate(prompts, LIMITS, poll=poll), key=lambda one: one.index)
        assert engine.weights_sha256() == digest
    assert between == [base, other]
    assert said == undisturbed
    assert engine.weights_sha256() == base


def test_several_candidates_are_parked_at_once(
    engine: Engine, prompts: Prompts, scale_map: ScaleMap, draw: Draw
) -> None:
    drawn = [draw(scale_map, seed, radius=0.1) for seed in range(4)]
    undisturbed = []
    for descriptor in drawn:
        with engine.candidate(descriptor, scale_map):
            undisturbed.append(answers(engine, prompts))
    said: dict[int, list[Completion]] = {}

    def answer_from(place: int) -> None:
        if place < len(drawn):
            poll = parked_after(engine, place, lambda: answer_from(place + 1))
            with engine.candidate(drawn[place], scale_map):
                found = engine.generate(prompts, LIMITS, poll=poll)
                said[place] = sorted(found, key=lambda one: one.index)

    answer_from(0)
    assert [said[place] for place in range(4)] == undisturbed


def test_an_exception_while_parked_ends_the_candidate_only(
    engine: Engine, prompts: Prompts, scale_map: ScaleMap, draw: Draw
) -> None:
    before, base = answers(engine, prompts), engine.weights_sha256()
    room = engine.has_room(prompts, LIMITS)

    def give_up() -> None:
        raise CancelledError("enough")

    poll = parked_after(engine, 2, give_up)
    with (
        pytest.raises(CancelledError),
        engine.candidate(draw(scale_map, 5), scale_map),
        closing(engine.generate(prompts, LIMITS, poll=poll)) as completions,
    ):
        list(completions)
    assert engine.weights_sha256() == base
    assert answers(engine, prompts) == before
    assert engine.has_room(prompts, LIMITS) == room


def test_an_exception_while_parked_keeps_another_candidate(
    engine: Engine, prompts: Prompts, scale_map: ScaleMap, draw: Draw
) -> None:
    first, second = (draw(scale_map, seed, radius=0.1) for seed in (5, 6))
    with engine.candidate(second, scale_map):
        undisturbed = answers(engine, prompts)
    room = engine.has_room(prompts, LIMITS)
    with ExitStack() as held:
        request = engine.generate(prompts, LIMITS)
        said = []

        def begin_another() -> None:
            held.enter_context(engine.candidate(second, scale_map))
            said.append(next(request))
            raise CancelledError("enough")

        poll = parked_after(engine, 2, begin_another)
        with (
            pytest.raises(CancelledError),
            engine.candidate(first, scale_map),
            closing(engine.generate(prompts, LIMITS, poll=poll)) as completions,
        ):
            list(completions)
        said += request
    assert sorted(said, key=lambda one: one.index) == undisturbed
    assert engine.has_room(prompts, LIMITS) == room


@contextmanager
def failing_restores(engine: Any) -> Iterator[None]:
    """Let restores of the base fail; restore it at the end."""
    ranks = getattr(engine, "_ranks", None)
    with pytest.MonkeyPatch.context() as patch:
        call = ranks._call if ranks else None

        def fail(*arguments: object) -> object:
            if call and arguments != ("restore",):
                return call(*arguments)
            raise RuntimeError("the device is gone") if call is None else EngineError("it is gone")

        patch.setattr(ranks or engine._weights, "_call" if ranks else "restore", fail)
        yield
    ranks.restore() if ranks else engine._restore_base()


def test_an_engine_whose_restore_failed_keeps_no_parked_request_and_refuses_work(
    engine: Engine, prompts: Prompts, scale_map: ScaleMap, draw: Draw
) -> None:
    before, room = answers(engine, prompts), engine.has_room(prompts, LIMITS)
    candidate = draw(scale_map, 5, radius=0.1)
    poll = parked_after(engine, 2, lambda: pytest.fail("the candidate is parked"))
    with failing_restores(engine):
        with (
            pytest.raises(EngineError, match="is gone"),
            engine.candidate(candidate, scale_map),
            closing(engine.generate(prompts, LIMITS, poll=poll)) as completions,
        ):
            list(completions)
        assert engine.has_room(prompts, LIMITS) == room
        with pytest.raises(EngineError, match="not the base"):
            answers(engine, prompts)
        with pytest.raises(EngineError, match="not the base"):
            engine.rebase(None)
        with (
            pytest.raises(EngineError, match="not the base"),
            engine.candidate(candidate, scale_map),
        ):
            pass
    assert answers(engine, prompts) == before
    assert engine.has_room(prompts, LIMITS) == room


def test_parking_needs_a_candidate_and_keeps_its_base(
    engine: Engine, checkpoint: Checkpoint, scale_map: ScaleMap, draw: Draw
) -> None:
    with pytest.raises(PreconditionError), engine.parked():
        pass
    with engine.candidate(draw(scale_map, 5), scale_map), engine.parked():
        engine.rebase(None)
        other = lineage_of(checkpoint)
        for change in (lambda: engine.rebase(other), lambda: engine.replace_model(checkpoint)):
            with pytest.raises(PreconditionError, match="candidate"):
                change()
        with engine.candidate(draw(scale_map, 6), scale_map):
            pass
    engine.rebase(None)
