import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from modnorm.errors import InvalidInputError
from modnorm.tasks.conformance import check_task
from modnorm.tasks.gsm8k import Gsm8k
from modnorm.tasks.protocol import Judgement

PAGE = Path(__file__).parents[2] / "docs" / "own-task.md"
STORY = ["He ran.", "He fell.", "He stood.", "He won.", "He slept."]
REACTION = {"rxn_smiles": "CCO>>CC=O"}
EXAMPLES: dict[str, list[tuple[dict[str, object], str]]] = {
    "countdown": [
        ({"numbers": [1, 2], "target": 3}, "</think>\n<answer>1 + 2</answer>"),
        ({"numbers": [4, 2], "target": 8}, "</think>\n<answer>4 * 2</answer>"),
    ],
    "gsm8k": [
        ({"question": "q", "answer": "#### 1,000"}, "#### 1000"),
        ({"question": "r", "answer": "#### 7"}, "#### 7"),
    ],
    "math500": [
        ({"problem": "p", "answer": r"\frac{1}{2}"}, r"\boxed{\frac{1}{2}}"),
        ({"problem": "q", "answer": "(3,4]"}, r"\boxed{(3,4]}"),
    ],
    "mbpp": [
        ({"text": "t", "test_list": ["assert f() == 1"]}, "<answer>def f(): return 1</answer>"),
        ({"text": "u", "test_list": ["assert f() == 2"]}, "<answer>def f(): return 2</answer>"),
    ],
    "olympiadbench": [
        ({"question": "q", "final_answer": ["$2 n$"]}, r"\boxed{2 n}"),
        ({"question": "r", "final_answer": ["7"]}, r"\boxed{7}"),
    ],
    "rocstories": [
        ({"title": "t", "shuffled_sentences": STORY, "gold_order": [1, 0, 2, 3, 4]}, "B,A,C,D,E"),
        ({"title": "u", "shuffled_sentences": STORY, "gold_order": [0, 2, 1, 3, 4]}, "A,C,B,D,E"),
    ],
    "uspto50k": [
        ({**REACTION, "class": 8}, "<answer>8</answer>"),
        ({**REACTION, "class": 10}, "<answer>10</answer>"),
    ],
}


def examples(name):
    return [row for row, _ in EXAMPLES[name]], [reference for _, reference in EXAMPLES[name]]


@pytest.mark.parametrize("scorer", [None, "reference"])
@pytest.mark.parametrize("name", EXAMPLES)
def test_every_task_of_the_paper_conforms(make_task, name, scorer):
    rows, references = examples(name)
    report = check_task(make_task(name, scorer), rows, references)
    assert report.failures == ()
    assert report.checks > 100
    report.require()


def broken(**members):
    """Return a task with other members than GSM8K's."""
    return type("Broken", (Gsm8k,), members)()


def judging(change):
    return broken(judge=lambda self, row, text: change(Gsm8k.judge(self, row, text)))


def careless(judgement):
    return Judgement(reward=1.0, vote="", correct=True)


@pytest.mark.parametrize(
    ("task", "failure"),
    [
        (judging(lambda found: replace(found, correct=True)), "answers to other rows"),
        (
            judging(lambda found: replace(found, vote=found.vote and "a number")),
            "follow from the row and the vote",
        ),
        (judging(careless), "no text must give no vote"),
        (judging(careless), "text that is not empty"),
        (judging(lambda found: replace(found, reward=1e300)), r"a reward up to 1e\+30"),
        (
            broken(parse=lambda self, raw: {**Gsm8k.parse(self, raw), "raw": json.dumps(raw)}),
            "does not parse to itself",
        ),
        (
            broken(
                parse=lambda _, raw: {key: str(raw.get(key)) for key in ("question", "answer")}
            ),
            "must be refused",
        ),
        (broken(metric=lambda *_: 0.5), "right votes must have the metric 1"),
        (broken(gold=lambda *_: ""), "the gold answer of row 0 must not be empty"),
    ],
)
def test_failures_of_a_task_are_listed(task, failure):
    rows, references = examples("gsm8k")
    report = check_task(task, rows, references)
    assert any(re.search(failure, each) for each in report.failures)
    with pytest.raises(InvalidInputError, match=failure):
        report.require()


def test_the_class_of_the_page_conforms():
    (source, *_) = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    names: dict[str, Any] = {}
    exec(source, names)
    rows = [{"a": "10", "b": "1"}, {"a": "5", "b": "6", "dropped": "x"}, {"a": "2", "b": "2"}]
    check_task(names["Sums"](), rows, ["11", "It is 011.", "4"]).require()


class RaisesErrors(Gsm8k):
    """Lets errors of Python out."""

    def parse(self, raw):
        return {"question": str(raw["question"]), "answer": super().parse(raw)["answer"]}

    def judge(self, row, completion):
        if not completion.isprintable():
            raise IndexError("no such character")
        return super().judge(row, completion)


def test_errors_of_a_task_are_listed_with_its_other_failures():
    report = check_task(RaisesErrors(), *examples("gsm8k"))
    told = "; ".join(report.failures)
    assert "must be refused by an InvalidInputError" in told
    assert "not by KeyError: 'question'" in told
    assert "hostile completions: the task raises IndexError: no such character" in told
