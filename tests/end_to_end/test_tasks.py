"""All seven tasks through the whole lab, with an engine whose answers are written down.

The engine is the real one but for its answers: every perturbed candidate answers rightly, the
unperturbed base answers every second row wrongly.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass

import pytest

from modnorm.checkpoint.prompts import PromptEncoder
from modnorm.cli.run import follow_to_end, submit_here
from modnorm.client.client import Client
from modnorm.engines import Completion, Finish, load_engine
from modnorm.services.embedded import start
from modnorm.spec import parse_spec
from modnorm.tasks.registry import get_task, task_names
from tests.delegating import Delegating, engines_from

STORY = ["He ran.", "He fell.", "He stood.", "He won.", "He slept."]


@dataclass(frozen=True)
class Case:
    """Rows with a right and a wrong answer each, and what half-wrong answers are worth."""

    rows: Sequence[dict[str, object]]
    right: Sequence[str]
    wrong: Sequence[str]
    right_reward: float = 1.0
    half_reward: float = 0.5
    """Mean selection reward with the second and the fourth row answered wrongly."""
    half_metric: float = 0.5


def boxed(answer):
    return rf"So it is \boxed{{{answer}}}."


def tagged(answer):
    return f"I think.</think>\n<answer>{answer}</answer>"


CASES = {
    "countdown": Case(
        [{"numbers": [n, 2], "target": n + 2} for n in range(3, 7)],
        [tagged(f"{n} + 2") for n in range(3, 7)],
        [tagged(f"{n} * 2") for n in range(3, 7)],
        right_reward=1.1,
        half_reward=0.6,
    ),
    "gsm8k": Case(
        [{"question": f"{n} and one?", "answer": f"#### {n + 1}"} for n in range(4)],
        [f"Adding.\n#### {n + 1}" for n in range(4)],
        [f"Adding.\n#### {n + 2}" for n in range(4)],
    ),
    "math500": Case(
        [{"problem": f"Half of {n}?", "answer": rf"\frac{{{n}}}{{2}}"} for n in (1, 3, 5, 7)],
        [boxed(rf"\frac{{{n}}}{{2}}") for n in (1, 3, 5, 7)],
        [boxed(rf"\frac{{{n}}}{{4}}") for n in (1, 3, 5, 7)],
    ),
    "mbpp": Case(
        [{"text": f"Add {n}.", "test_list": [f"assert f(1) == {n + 1}"]} for n in range(4)],
        [tagged(f"def f(x): return x + {n}") for n in range(4)],
        [tagged(f"def f(x): return x + {n + 1}") for n in range(4)],
    ),
    "olympiadbench": Case(
        [{"question": f"Twice {n}?", "final_answer": [f"${2 * n}$"]} for n in range(1, 5)],
        [boxed(2 * n) for n in range(1, 5)],
        [boxed(2 * n + 1) for n in range(1, 5)],
    ),
    "rocstories": Case(
        [
            {"title": f"{n}", "shuffled_sentences": STORY, "gold_order": [0, 1, 2, 3, 4]}
            for n in range(4)
        ],
        ["A,B,C,D,E"] * 4,
        ["B,A,C,D,E"] * 4,
        # A wrong order has three of five places and three of four neighbours right.
        half_reward=(1.0 + 0.6 * 3 / 5 + 0.4 * 3 / 4) / 2,
    ),
    "uspto50k": Case(
        [
            {"rxn_smiles": f"{'C' * n}O>>{'C' * n}=O", "class": number}
            for n, number in enumerate((8, 8, 8, 10), 1)
        ],
        [tagged(number) for number in (8, 8, 8, 10)],
        [tagged(3)] * 4,
        # Two of three of class 8, none of class 10.
        half_metric=1 / 3,
    ),
}


class ScriptedEngine(Delegating):
    """A real engine whose answers are replaced by given texts.

    Args:
        engine: Holds the weights.
        right: Answer of a perturbed candidate to each prompt.
        base: Answer of the base to each prompt.
    """

    def __init__(self, engine, right, base):
        super().__init__(engine)
        self._scripts = {True: base, False: right}
        self._is_base = True

    def candidate(self, descriptor, scale_map):
        self._is_base = descriptor.method == "base"
        return self._inner.candidate(descriptor, scale_map)

    def generate(self, prompts, limits, *, poll=None):
        script = self._scripts[self._is_base]
        for index, prompt in reversed(list(enumerate(prompts))):
            if poll is not None:
                poll()
            yield Completion(index, script[tuple(prompt)], tokens=1, finish=Finish.STOP)


def load_scripted(name, checkpoint, settings):
    """Load an engine that knows the rows of all cases."""
    encoder = PromptEncoder(checkpoint)
    right, base = {}, {}
    for task_name, case in CASES.items():
        task = get_task(task_name)
        for index, row in enumerate(case.rows):
            prompt = tuple(encoder.encode(task.messages(task.parse(row))))
            right[prompt] = case.right[index]
            base[prompt] = (case.wrong if index % 2 else case.right)[index]
    return ScriptedEngine(load_engine(name, checkpoint, settings), right, base)


@pytest.fixture(scope="module")
def client(tmp_path_factory):
    state = tmp_path_factory.mktemp("lab")
    with (
        engines_from(load_scripted),
        start(state / "state", cache=state / "cache") as lab,
        Client(lab.target, credentials=lab.credentials) as made,
    ):
        yield made


@pytest.fixture
def run(client, tmp_path):
    """Run an experiment on the rows of a case, to its end."""

    def carry(name, scorer):
        lines = "".join(f"{json.dumps(row)}\n" for row in CASES[name].rows)
        paths = {split: tmp_path / f"{split}.jsonl" for split in ("selection", "heldout")}
        for path in paths.values():
            path.write_text(lines)
        task = {"name": name, "max_tokens": 8, **{split: str(paths[split]) for split in paths}}
        spec = {
            "model": "tiny-thicket",
            "task": {**task, "scorer": scorer},
            "method": {"name": "randopt", "radius": 0.001},
            "population": {"size": 3, "ensemble_sizes": [1, 3]},
        }
        return follow_to_end(client, submit_here(client, parse_spec(spec)))

    return carry


@pytest.mark.parametrize(
    ("name", "scorer"),
    [*((name, None) for name in CASES), ("math500", "reference"), ("mbpp", "reference")],
)
def test_right_answers_are_worth_everything_and_wrong_ones_what_they_are(
    run, client, name, scorer
):
    assert set(CASES) == set(task_names())
    case = CASES[name]
    ended = run(name, scorer)
    assert ended.base.selection_reward == pytest.approx(case.half_reward)
    assert ended.base.heldout_metric == pytest.approx(case.half_metric)
    assert [ensemble.metric for ensemble in ended.ensembles] == [1.0, 1.0]
    stored = client.run(ended.id)
    scored = list(stored.candidates)
    assert [each.selection_reward for each in scored] == pytest.approx([case.right_reward] * 3)
    assert all(each.state == "scored" for each in scored)
    assert ended.provenance.scorer == get_task(name, scorer=scorer).scorer
    votes = list(stored.votes(None, 3, 3))
    assert [(vote.valid, vote.support, vote.correct_support) for vote in votes] == [(3, 3, 3)] * 4
    created = next(client.watch(ended.id))
    assert ("sandbox with" in created.message) is (name == "mbpp")
