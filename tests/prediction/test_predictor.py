"""The vote of experts that take turns, with an engine that plays a script."""

from contextlib import contextmanager
from typing import Any

import pytest

from modnorm.checkpoint.reference import resolve_checkpoint
from modnorm.engines import Completion, Finish
from modnorm.errors import InvalidInputError, NotFoundError
from modnorm.geometry.scale_map import ScaleMap
from modnorm.perturbation.descriptor import Descriptor
from modnorm.prediction.ensemble_definition import EnsembleDefinition, Expert, TaskIdentity
from modnorm.prediction.manifest import EnsembleManifest, ExamplePrompt
from modnorm.prediction.predictor import Predictor, Question, vote_on_questions
from modnorm.search.voting import AnswerCount
from modnorm.spec import ModelSpec
from modnorm.tasks import get_task
from tests.faults import error_at

SCALE_MAP = ScaleMap("randopt", "0" * 64, ())


class ScriptedEngine:
    """Answers prompt [row] of candidate SEED with `script[SEED][row]`; None is no number."""

    def __init__(self, script):
        self.script, self.held, self.asked = script, None, {}

    @contextmanager
    def candidate(self, descriptor, scale_map):
        assert self.held is None
        self.held = descriptor.seed
        try:
            yield descriptor
        finally:
            self.held = None

    def generate(self, prompts, limits):
        self.asked[self.held] = [row for (row,) in prompts]
        for index, (row,) in reversed(list(enumerate(prompts))):
            answer = self.script[self.held][row]
            text = "no idea" if answer is None else f"#### {answer}"
            yield Completion(index, text, 3, Finish.STOP if answer else Finish.LENGTH)


def ensemble(seeds):
    experts = tuple(
        Expert(10 * seed, Descriptor("portable-v1", seed, "randopt", 0.1, "m", ()))
        for seed in seeds
    )
    task = TaskIdentity("gsm8k", "gsm8k-v3", None, 8)
    return EnsembleDefinition(ModelSpec(name="m"), "0" * 64, task, SCALE_MAP, 50, experts)


def predict(script, **options):
    engine: Any = ScriptedEngine(script)
    rows = len(next(iter(script.values())))
    questions = [Question({"question": "q"}, [row], 8) for row in range(rows)]
    task = get_task("gsm8k")
    return list(vote_on_questions(engine, ensemble(script), task, questions, **options)), engine


def test_most_votes_win_and_the_best_expert_breaks_a_tie():
    (most, tie, none), _ = predict(
        {3: [1, 5, None], 1: [2, 6, None], 2: [2, None, None]}, ask_all=True
    )
    assert (most.answer, most.completion, most.agreement) == ("2", "#### 2", pytest.approx(2 / 3))
    assert most.votes == (AnswerCount("2", 2, 10), AnswerCount("1", 1, 30))
    assert [each.expert for each in most.experts] == [30, 10, 20]
    assert (tie.answer, tie.completion) == ("5", "#### 5")
    assert (none.answer, none.completion, none.agreement, none.votes) == (None, None, None, ())
    assert none.experts[0].truncated
    assert [each.row for each in (most, tie, none)] == [0, 1, 2]


def test_experts_leave_out_questions_whose_vote_is_settled():
    script = {1: [7, 7], 2: [7, 8], 3: [9, 8]}
    (settled, open_), engine = predict(script)
    assert engine.asked == {1: [0, 1], 2: [0, 1], 3: [1]}
    assert (settled.answer, settled.skipped, settled.agreement) == ("7", 1, 1.0)
    assert (open_.answer, open_.skipped) == ("8", 0)
    everything, engine = predict(script, ask_all=True)
    assert engine.asked[3] == [0, 1]
    assert [each.answer for each in everything] == ["7", "8"]
    _, engine = predict({1: [7], 2: [7], 3: [9]})
    assert 3 not in engine.asked


def test_progress_ends_at_the_number_of_all_answers():
    seen: list[tuple[int, int]] = []
    predict({1: [7, 7], 2: [7, 8], 3: [9, 8]}, on_progress=lambda *one: seen.append(one))
    assert seen == sorted(seen)
    assert seen[-1] == (6, 6)


def test_an_error_of_on_progress_leaves_the_candidate_before_the_engine_closes(monkeypatch):
    engine: Any = ScriptedEngine({1: [7]})
    engine.close = lambda: engine.asked.update(closed=engine.held)
    monkeypatch.setattr("modnorm.prediction.predictor.load_engine", lambda *_: engine)
    asked = Predictor(ensemble([1]), resolve_checkpoint("tiny-thicket"))
    with pytest.raises(pytest.fail.Exception):
        list(asked.predict([Question(None, [0], 8)], on_progress=lambda *_: pytest.fail("shown")))
    assert engine.asked == {1: [0], "closed": None}


def test_a_question_that_does_not_fit_the_model_is_named_by_its_place():
    predictor = Predictor(ensemble([1]), resolve_checkpoint("tiny-thicket"))
    placed = [("a.jsonl, line 1", {"question": "1 + 1?"})]
    assert len(predictor.encode(placed)) == 1
    long = [*placed, ("a.jsonl, line 2", {"question": "1 + " * 2000})]
    with error_at("input", r"a\.jsonl, line 2: .* exceed the 2048"):
        predictor.encode(long)
    with pytest.raises(InvalidInputError, match="no questions"):
        predictor.encode([])


@pytest.fixture
def manifest():
    prompt = ExamplePrompt(question={}, tokens_sha256="0" * 64)
    digests = ("0" * 64,) * 2
    return EnsembleManifest(ensemble([1, 2]), prompt, digests, digests, "modnorm-ensemble-3")


def test_a_manifest_has_ensembles_of_its_first_experts(manifest):
    assert manifest.narrowed(None, None).indices == (10, 20)
    assert manifest.narrowed(50, 1).indices == (10,)


@pytest.mark.parametrize(("population", "size"), [(None, 0), (None, 3), (None, -1), (20, 1)])
def test_other_sizes_are_refused(manifest, population, size):
    with pytest.raises(NotFoundError, match="no such ensemble"):
        manifest.narrowed(population, size)
