import pytest

from modnorm.tasks import get_task

TASK = get_task("uspto50k")
PUBLISHED = get_task("uspto50k", scorer="reference")
ROWS = [TASK.parse({"rxn_smiles": "CCO>>CC=O", "class": number}) for number in (8, 8, 8, 7)]


def test_atom_maps_are_removed_and_nothing_else():
    raw = {"rxn_smiles": "O[CH2:3][N+:12](=[O:1])[O-]>>[CH3:3][13C:10].C:1", "class": "9"}
    row = TASK.parse(raw)
    assert row == {"rxn_smiles": "O[CH2][N+](=[O])[O-]>>[CH3][13C].C:1", "class": 9}
    assert TASK.parse(row) == row


@pytest.mark.parametrize(
    ("completion", "stated", "published"),
    [
        ("<answer>7</answer>", "7", "7"),
        ("<answer> 10 </answer>", "10", "10"),
        ("<ANSWER>7</ANSWER>", "7", "7"),
        ("<answer>1</answer> no, <answer>2</answer>", "2", "2"),
        ("<answer>Class 7</answer>", "7", "7"),
        ("<answer>7", "7", "7"),
        ("<answer>07</answer>", "7", "07"),
        ("<answer>11</answer>", None, "11"),
        ("<answer>9: Functional group interconversion</answer>", "9", "9"),
        ("<answer>1: alkylation (e.g., SN2, ether formation)</answer>", "1", "1"),
        ("<answer>1-10</answer>", None, "10"),
        ("<answer>7 or 8</answer>", None, "8"),
        ("<answer>-3</answer>", None, "3"),
        ("<answer>\u22123</answer>", None, "3"),
        ("<answer>Class: -3</answer>", None, "3"),
        ("This is class 2. <answer>-3</answer>", None, "3"),
        ("<answer>Class-3</answer>", "3", "3"),
        ("<answer>- 3</answer>", "3", "3"),
        ("-3", None, "3"),
        ("- 3", "3", "3"),
        ("The answer is -3", None, "3"),
        ("The answer is **3**.", "3", "3"),
        ("Class number: **3**", "3", "3"),
        ("Class: 3", "3", "3"),
        ("This is class 3, I think", "3", "3"),
        ("7", "7", "7"),
        # The published reading takes any lone number.
        ("There are 2 rings", None, "2"),
        ("12", None, None),
        ("none", None, None),
        ("", None, None),
    ],
)
def test_classes_are_read(completion, stated, published):
    assert TASK.judge(ROWS[0], completion).vote == stated
    assert PUBLISHED.judge(ROWS[0], completion).vote == published


def test_selection_is_micro_and_reporting_balanced():
    votes = ["8", "8", "1", None]
    judgements = [
        TASK.judge(row, f"<answer>{vote}</answer>") for row, vote in zip(ROWS, votes, strict=True)
    ]
    assert sum(each.reward for each in judgements) / len(judgements) == 0.5
    correct = [each.correct for each in judgements]
    assert TASK.metric(ROWS, correct) == pytest.approx((2 / 3 + 0) / 2)
    assert TASK.metric(ROWS, [True] * 4) == 1.0


def test_the_published_metric_compares_texts_where_its_reward_compares_numbers():
    judgement = PUBLISHED.judge(ROWS[0], "<answer>08</answer>")
    assert (judgement.reward, judgement.vote, judgement.correct) == (1.0, "08", False)
