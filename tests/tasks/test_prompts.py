"""Prompts against golden files, which hold the text of the paper's prompt templates."""

from pathlib import Path

import pytest

from modnorm.tasks.protocol import Message, prompt_text, stated_gold

GOLDEN = Path(__file__).parent / "golden"
STORY = {
    "title": "The lost key",
    "shuffled_sentences": [
        "He called a locksmith.",
        "Max came home late.",
        "The door opened at last.",
        "His key was gone.",
        "He looked in every pocket.",
    ],
    "gold_order": [1, 3, 4, 0, 2],
}
TESTS = [
    "assert double(1) == 2",
    "assert double(0) == 0",
    "assert double(-3) == -6",
    "assert double(7) == 14",
]
ROWS = {
    "countdown": {"numbers": [44, 19, 35], "target": "98"},
    "gsm8k": {
        "question": "Tom has 3 pens and buys 4 more. How many pens does Tom have?",
        "answer": "3 + 4 = 7\n#### 7",
    },
    "math500": {"problem": r"Compute $\frac{1}{2} + \frac{1}{3}$.", "answer": r"\frac{5}{6}"},
    "mbpp": {
        "text": "Write a function to double a number.",
        "test_list": TESTS,
        "test_setup_code": "import math",
    },
    "olympiadbench": {
        "question": "Determine all real $x$ with $x^{2}=4$.",
        "final_answer": ["$2,-2$"],
        "is_multiple_answer": True,
    },
    "rocstories": STORY,
    "uspto50k": {
        "rxn_smiles": "O[CH2:3][CH:2]=[CH2:1].[OH:4][c:5]1[cH:6][n:7][cH:8][cH:9][c:10]1[Cl:11]>>"
        "[CH2:1]=[CH:2][CH2:3][O:4][c:5]1[cH:6][n:7][cH:8][cH:9][c:10]1[Cl:11]",
        "class": 1,
    },
}


@pytest.mark.parametrize("scorer", [None, "reference"])
@pytest.mark.parametrize("name", sorted(ROWS))
def test_the_prompt_is_the_papers(make_task, name, scorer):
    task = make_task(name, scorer)
    messages = {message.role: message.content for message in task.messages(task.parse(ROWS[name]))}
    files = {role: GOLDEN / f"{name}.{role}.txt" for role in ("system", "user")}
    expected = {role: path.read_bytes().decode() for role, path in files.items() if path.is_file()}
    assert messages == expected


@pytest.mark.parametrize("scorer", [None, "reference"])
@pytest.mark.parametrize(
    ("name", "gold"),
    [
        ("countdown", "98"),
        ("gsm8k", "7"),
        ("math500", r"\frac{5}{6}"),
        ("mbpp", "\n".join(TESTS)),
        ("olympiadbench", "2,-2"),
        ("rocstories", "BDEAC"),
        ("uspto50k", "1"),
    ],
)
def test_every_task_of_the_paper_states_the_right_answer(make_task, name, scorer, gold):
    task = make_task(name, scorer)
    assert stated_gold(task, task.parse(ROWS[name])) == gold


def test_a_prompt_as_one_text_names_roles_other_than_the_users():
    assert prompt_text([Message("user", "1 + 1?")]) == "1 + 1?"
    turns = [Message("system", "Be brief."), Message("user", "1 + 1?")]
    assert prompt_text(turns) == "[system]\nBe brief.\n\n1 + 1?"
