from itertools import islice

import pytest

from modnorm.analysis.run import Run
from modnorm.tasks import Judgement
from tests.scripted_services import write_stored


@pytest.fixture
def source(gsm8k_stored):
    """The arguments that name a finished run."""
    return (gsm8k_stored,)


def test_all_answers_are_listed_in_order(modnorm_json, source):
    answers = modnorm_json("answers", *source)
    places = [(each["candidate"], each["split"], each["row"]) for each in answers]
    assert places == [
        (candidate, split, row)
        for candidate, splits in ((-1, 2), (0, 2), (1, 2), (2, 1))
        for split in ("selection", "heldout")[:splits]
        for row in range(2)
    ]
    assert answers[4] == {
        "candidate": 0,
        "split": "selection",
        "row": 0,
        "prompt": 'q Let\'s think step by step and output the final answer after "####".',
        "gold": "1000",
        "completion": "so 1000.",
        "vote": "1000",
        "reward": 1.0,
        "correct": True,
        "tokens": 0,
        "truncated": False,
    }


def test_answers_are_chosen_by_candidate_split_row_and_verdict(modnorm_json, source):
    chosen = ("--candidate", 1, "--split", "heldout")
    assert len(modnorm_json("answers", *source, *chosen)) == 2
    (wrong,) = modnorm_json("answers", *source, *chosen, "--wrong")
    assert (wrong["row"], wrong["completion"], wrong["gold"]) == (1, "so 8", "7")
    assert modnorm_json("answers", *source, "--candidate", 0, "--wrong") == []
    base = modnorm_json("answers", *source, "--candidate", -1, "--row", 1)
    assert [each["completion"] for each in base] == ["no", "so 7"]


def test_a_single_answer_is_shown_whole(printed, source):
    chosen = ("--candidate", 1, "--split", "heldout", "--row", 1)
    out = printed("answers", *source, *chosen)
    assert out.splitlines() == [
        "candidate 1, heldout row 1: wrong, reward 0.0000, 0 tokens",
        "gold  7",
        "vote  8",
        "",
        "prompt",
        'q Let\'s think step by step and output the final answer after "####".',
        "",
        "completion",
        "so 8",
    ]


@pytest.mark.parametrize("command", ["answers", "votes"])
def test_a_table_reads_no_further_than_it_shows(modnorm, source, monkeypatch, command):
    read = getattr(Run, command)

    def first_lines(*arguments, **options):
        yield from islice(read(*arguments, **options), 3)
        pytest.fail("the table reads on")

    monkeypatch.setattr(Run, command, first_lines)
    code, out, err = modnorm(command, *source, "--limit", 2)
    assert (code, len(out.splitlines())) == (0, 3)
    assert "--limit shows more" in err


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (("--candidate", 3), "no stored answer matches"),  # it failed
        (("--candidate", 9), "name one of 0 to 3"),
        (("--candidate", 2, "--split", "heldout"), "experts (0, 1) answered held-out rows"),
        (("--candidate", 2, "--split", "heldout", "--wrong"), "answered held-out rows"),
        (("--row", 2), "error: row: the run has no row 2"),
        (("--candidate", 9, "--row", 2), "error: candidate: the run has no candidate 9"),
        (("--split", "test"), "one of selection, heldout, development"),
    ],
)
def test_what_no_answer_matches_is_refused(modnorm, source, options, told):
    code, out, err = modnorm("answers", *source, *options)
    assert code == 2
    assert not out
    assert told in err


def test_votes_are_counted_for_every_ensemble(modnorm_json, source):
    votes = modnorm_json("votes", *source)
    places = [(each["population"], each["ensemble_size"], each["row"]) for each in votes]
    assert places == [(n, k, row) for n in (2, 4) for k in (1, 2) for row in (0, 1)]
    (tie,) = modnorm_json("votes", *source, "--row", 1, "--n", 4, "--k", 2)
    assert tie == {
        "population": 4,
        "ensemble_size": 2,
        "row": 1,
        "gold": "7",
        "answer": "7",
        "correct": True,
        "valid": 2,
        "support": 1,
        "correct_support": 1,
        "experts": [0, 1],
        "votes": ["7", "8"],
        "expert_correct": [True, False],
        "counts": [
            {"answer": "7", "votes": 1, "expert": 0},
            {"answer": "8", "votes": 1, "expert": 1},
        ],
        "tied": ["7", "8"],
        "tie_broken_by": 0,
    }


def test_a_single_vote_is_shown_with_every_expert(printed, source):
    out = printed("votes", *source, "--row", 1, "--n", 4, "--k", 2)
    lines = out.splitlines()
    assert lines[:4] == [
        "N=4 K=2, held-out row 1: right",
        "gold    7",
        "answer  7, 1 of 2 valid votes",
        "tie     7, 8 have most votes, 1 each; expert 0 decides, the best-ranked of theirs",
    ]
    assert 'q Let\'s think step by step and output the final answer after "####".' in lines
    assert [line.split() for line in lines[-2:]] == [["1", "0", "7", "yes"], ["2", "1", "8", "no"]]


def test_what_no_vote_matches_is_refused(refusal, source):
    err = refusal("votes", *source, "--n", 3)
    assert err.startswith("error: n: the run has no ensemble N=3")
    assert "one of N=2 K=1, N=2 K=2, N=4 K=1, N=4 K=2" in err
    assert refusal("votes", *source, "--row", 9).startswith("error: row: no row 9 was voted on")


def test_completions_do_not_command_the_terminal(printed, gsm8k_experiment, tmp_path):
    split, hostile = "selection", "\x1b[2J[red]\r\u202e so 7"
    rows = {split: [{"question": "q", "answer": "7"}] * 2}
    answers = {(-1, split): [(hostile, Judgement(1.0, "7", correct=True))] * 2}
    del gsm8k_experiment.ensembles[:]
    run = write_stored(tmp_path / "run", gsm8k_experiment, [], rows, answers)
    for options in ((), ("--row", 0)):
        out = printed("answers", run, *options)
        assert "\\x1b[2J[red]" in out
        assert not {"\x1b", "\r"} & set(out)


def test_wrong_votes_and_tied_votes_alone(modnorm_json, source):
    every = modnorm_json("votes", *source)
    assert modnorm_json("votes", *source, "--wrong") == [v for v in every if not v["correct"]]
    tied = modnorm_json("votes", *source, "--tied")
    assert tied == [vote for vote in every if vote["tied"]]
    assert tied
    assert modnorm_json("votes", *source, "--tied", "--wrong") == [
        vote for vote in tied if not vote["correct"]
    ]


@pytest.mark.parametrize("name", ["answers.parquet", "votes.parquet", "candidates.csv"])
def test_a_missing_file_of_a_run_is_named_once(refusal, gsm8k_stored, name):
    run = gsm8k_stored
    (run / name).unlink()
    err = refusal(name.split(".")[0], run)
    assert err.startswith(f"error: run: {run} has no {name} (copy the whole directory;")
    assert "Errno" not in err
