from dataclasses import replace

import pyarrow as pa
import pytest

from modnorm.analysis.parquet_files import (
    ANSWER_SCHEMA,
    GROUP_LINES,
    VOTE_SCHEMA,
    read_answers,
    read_ballots,
    read_frame,
    read_votes,
    write_answers,
    write_votes,
)
from modnorm.analysis.votes import VoteRecord
from modnorm.errors import InvalidInputError
from modnorm.search.answers import AnswerRecord
from modnorm.search.voting import AnswerCount, Ballot
from tests.faults import error_at

ANSWER = AnswerRecord(
    candidate=-1,
    split="selection",
    row=0,
    prompt="1 + 1?",
    gold="2",
    completion="It is\n2.",
    vote="2",
    reward=1.1,
    correct=True,
    tokens=5,
    truncated=False,
)
VOTE = VoteRecord(
    population=4,
    ensemble_size=3,
    row=0,
    gold="2",
    answer="3",
    correct=False,
    valid=2,
    support=1,
    correct_support=1,
    experts=(2, 0, 1),
    votes=("3", "2", None),
    expert_correct=(False, True, False),
    counts=(AnswerCount("3", 1, 2), AnswerCount("2", 1, 0)),
    tied=("3", "2"),
    tie_broken_by=2,
)


def accepts(wanted, answer):
    return all(getattr(answer, name) == value for name, value in wanted.items())


@pytest.fixture
def answers():
    """Answers of the base and two candidates, half of them wrong and without a vote."""
    return [
        replace(
            ANSWER,
            candidate=candidate,
            split=split,
            row=row,
            vote="2" if row % 2 == 0 else None,
            correct=row % 2 == 0,
        )
        for candidate in (-1, 0, 1)
        for split in ("selection", "heldout")
        for row in range(4)
    ]


def test_answers_are_read_as_they_were_written(answers, tmp_path):
    write_answers(tmp_path, iter(answers))
    assert list(read_answers(tmp_path)) == answers
    assert [path.name for path in tmp_path.iterdir()] == ["answers.parquet"]


def test_answers_of_several_row_groups_keep_their_order(tmp_path):
    many = [
        replace(ANSWER, candidate=index // 7, row=index % 7) for index in range(GROUP_LINES + 9)
    ]
    write_answers(tmp_path, many)
    assert list(read_answers(tmp_path)) == many
    wanted = {"candidate": GROUP_LINES // 7}
    assert list(read_answers(tmp_path, **wanted)) == [one for one in many if accepts(wanted, one)]


def test_a_reader_holds_few_row_groups_of_a_large_file(tmp_path):
    text = "x" * 1_000
    count = 16 * GROUP_LINES
    write_answers(tmp_path, (replace(ANSWER, row=row, completion=text) for row in range(count)))
    before, most = pa.total_allocated_bytes(), 0
    for answer in read_answers(tmp_path):
        if answer.row % 500 == 0:
            most = max(most, pa.total_allocated_bytes() - before)
    assert most < 4 * GROUP_LINES * len(text)


@pytest.mark.parametrize(
    ("wanted", "count"),
    [
        ({"candidate": -1}, 8),
        ({"split": "heldout"}, 12),
        ({"row": 3}, 6),
        ({"candidate": 1, "split": "heldout", "row": 2}, 1),
        ({"correct": False}, 12),
        ({"row": 0, "correct": False}, 0),
    ],
)
def test_only_wanted_answers_are_read(answers, tmp_path, wanted, count):
    write_answers(tmp_path, answers)
    found = list(read_answers(tmp_path, **wanted))
    assert found == [one for one in answers if accepts(wanted, one)]
    assert len(found) == count


def test_ballots_are_in_row_order(answers, tmp_path):
    write_answers(tmp_path, answers)
    ballots, golds = read_ballots(tmp_path, 4)
    assert golds == ["2"] * 4
    assert ballots[1] == Ballot(("2", None, "2", None), (True, False, True, False))


def test_votes_are_read_as_they_were_written(tmp_path):
    votes = [replace(VOTE, row=row, ensemble_size=size) for size in (1, 3) for row in range(3)]
    write_votes(tmp_path, votes)
    assert list(read_votes(tmp_path)) == votes
    assert list(read_votes(tmp_path, row=1, ensemble_size=3)) == [votes[4]]
    assert list(read_votes(tmp_path, population=5)) == []


def test_frames_have_the_columns_asked_for(answers, tmp_path):
    write_answers(tmp_path, answers)
    write_votes(tmp_path, [VOTE])
    frame = read_frame(tmp_path / "answers.parquet", ANSWER_SCHEMA, ("candidate", "correct"))
    assert list(frame.columns) == ["candidate", "correct"]
    assert frame.groupby("candidate")["correct"].mean().to_dict() == {-1: 0.5, 0: 0.5, 1: 0.5}
    assert list(read_frame(tmp_path / "votes.parquet", VOTE_SCHEMA)["experts"][0]) == [2, 0, 1]


def test_a_directory_without_the_file_is_refused_with_the_remedy(tmp_path):
    with pytest.raises(InvalidInputError, match=r"answers\.parquet") as raised:
        next(read_answers(tmp_path))
    assert "writes its files again" in str(raised.value.remedy)


def test_one_text_is_no_list_of_columns(answers, tmp_path):
    write_answers(tmp_path, answers)
    with error_at("columns", r"give \['vote'\]"):
        read_frame(tmp_path / "answers.parquet", ANSWER_SCHEMA, "vote")


def test_a_file_with_other_columns_is_refused(tmp_path):
    write_votes(tmp_path, [VOTE])
    (tmp_path / "votes.parquet").rename(tmp_path / "answers.parquet")
    with pytest.raises(InvalidInputError, match="other columns"):
        next(read_answers(tmp_path))


@pytest.mark.parametrize(
    "read",
    [lambda path: next(read_votes(path.parent)), lambda path: read_frame(path, VOTE_SCHEMA)],
)
def test_a_damaged_part_of_a_file_is_an_error_with_the_remedy(tmp_path, read):
    write_votes(tmp_path, (replace(VOTE, row=row) for row in range(1_000)))
    path = tmp_path / "votes.parquet"
    content = path.read_bytes()
    path.write_bytes(bytes(byte ^ 90 for byte in content[:2_000]) + content[2_000:])
    with pytest.raises(InvalidInputError, match=r"votes\.parquet") as raised:
        read(path)
    assert "writes its files again" in str(raised.value.remedy)


def test_a_broken_write_leaves_the_old_file(answers, tmp_path):
    def broken():
        yield from answers
        raise OSError("the lab is away")

    write_answers(tmp_path, answers[:1])
    with pytest.raises(OSError, match="away"):
        write_answers(tmp_path, broken())
    assert list(read_answers(tmp_path)) == answers[:1]
