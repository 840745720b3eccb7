"""Rows that a task refuses, with the column at fault."""

import pytest

from modnorm.tasks import get_task
from tests.faults import error_at

MALFORMED = {
    "countdown": [
        ({"target": 98}, "numbers"),
        ({"numbers": [], "target": 98}, "numbers"),
        ({"numbers": "44 19", "target": 98}, "numbers"),
        ({"numbers": [44, "19"], "target": 98}, "numbers"),
        ({"numbers": [44, True], "target": 98}, "numbers"),
        ({"numbers": [44, -1], "target": 98}, "numbers"),
        ({"numbers": [44, 1.5], "target": 98}, "numbers"),
        ({"numbers": [44, 10**10], "target": 98}, "numbers"),
        ({"numbers": [44]}, "target"),
        ({"numbers": [44], "target": "many"}, "target"),
        ({"numbers": [44], "target": "9" * 5000}, "target"),
        ({"numbers": [44], "target": None}, "target"),
        ({"numbers": [44], "target": True}, "target"),
        ({"numbers": [44], "target": float("nan")}, "target"),
        ({"numbers": [44], "target": float("inf")}, "target"),
    ],
    "gsm8k": [
        ({"answer": "#### 1"}, "question"),
        ({"question": " ", "answer": "#### 1"}, "question"),
        ({"question": "\ud800?", "answer": "#### 1"}, "question"),
        ({"question": "How many?"}, "answer"),
        ({"question": "How many?", "answer": None}, "answer"),
        ({"question": "How many?", "answer": True}, "answer"),
        ({"question": "How many?", "answer": "many"}, "answer"),
        *(
            ({"question": "How many?", "answer": f"5 * 2 = 10\n#### {gold}"}, "answer")
            for gold in ("", "10:30", "5 or 6", "18 eggs", "10-12", "3,50", "18 (9 * 2)", "5/0")
        ),
    ],
    "math500": [({"answer": "5"}, "problem"), ({"problem": "p", "answer": [5]}, "answer")],
    "olympiadbench": [
        ({"final_answer": ["5"]}, "question"),
        ({"question": "q", "final_answer": []}, "final_answer"),
        ({"question": "q", "final_answer": "5"}, "final_answer"),
        ({"question": "q", "final_answer": ["5"], "is_multiple_answer": 2}, "is_multiple_answer"),
    ],
    "rocstories": [
        ({"storyid": None, "sentence1": "A."}, "storyid"),
        ({"storyid": "s-1", "storytitle": "T", "sentence1": "A.", "sentence2": " "}, "sentence2"),
        ({"shuffled_sentences": ["a"], "gold_order": [0]}, "shuffled_sentences"),
        ({"shuffled_sentences": list("abcde"), "gold_order": [0, 1, 2, 3, 3]}, "gold_order"),
        ({"shuffled_sentences": list("abcde"), "gold_order": [True, 0, 2, 3, 4]}, "gold_order"),
        ({"shuffled_sentences": list("abcde")}, "gold_order"),
    ],
    "uspto50k": [
        ({"class": 1}, "rxn_smiles"),
        ({"rxn_smiles": "CCO", "class": 1}, "rxn_smiles"),
        ({"rxn_smiles": "C>>C", "class": 0}, "class"),
        ({"rxn_smiles": "C>>C", "class": 11}, "class"),
        ({"rxn_smiles": "C>>C", "class": "one"}, "class"),
        ({"rxn_smiles": "C>>C", "class": True}, "class"),
        ({"rxn_smiles": "C>>C"}, "class"),
    ],
}


@pytest.mark.parametrize(
    ("task", "raw", "column"), [(task, *case) for task in MALFORMED for case in MALFORMED[task]]
)
def test_a_malformed_row_names_its_column(task, raw, column):
    with error_at(column):
        get_task(task).parse(raw)
