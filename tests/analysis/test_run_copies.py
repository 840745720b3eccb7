"""Small copies of runs keep every figure, reward and vote, and no text."""

import hashlib
import json
import zipfile
from dataclasses import replace
from pathlib import Path

import pytest

from modnorm.analysis import frames
from modnorm.analysis.parquet_files import read_answers, read_votes, write_answers, write_votes
from modnorm.analysis.run import load_run
from modnorm.errors import InvalidInputError
from modnorm.files import encode_json
from scripts.run_copies import pack_run, unpack_run
from tests.analysis.test_parquet_files import ANSWER, VOTE
from tests.small_results import small_results

# The gold answer is b.
SAID = {0: ["b", "a", None, "b"], 1: ["a", "b", None, "b"]}
SECRET = "a text that must not be kept"


def _answer(candidate, split, row, vote):
    texts = {"prompt": SECRET, "gold": SECRET, "completion": SECRET, "vote": vote}
    judged = {"reward": 0.1 + (vote == "b"), "correct": vote == "b", "truncated": vote is None}
    return replace(ANSWER, candidate=candidate, split=split, row=row, **texts, **judged)


def _vote(row, answer, valid, support, right):
    return replace(
        VOTE,
        ensemble_size=2,
        row=row,
        gold=SECRET,
        answer=answer,
        correct=answer == "b",
        valid=valid,
        support=support,
        correct_support=right,
        experts=(1, 0),
    )


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """A finished run whose ensemble is candidates 1 and 0."""
    place = tmp_path / "run"
    place.mkdir()
    spec = {"name": "n", "model": {"name": "m"}, "task": {"name": "t"}, "method": {"name": "x"}}
    spec |= {"population": {"seed": 1}}
    results = small_results(spec, ensemble_size=2, experts=[1, 0])
    (place / "results.json").write_text(json.dumps(results))
    (place / "spec.json").write_text(json.dumps(spec))
    (place / "candidates.csv").write_text("index\n0\n1\n")
    timings = {"phases": {"voting": 1.5}, "candidates": [{"index": 0, "worker": "host-7"}]}
    (place / "timings.json").write_text(json.dumps(timings))
    # A tie goes to the better-ranked expert, which is candidate 1.
    votes = [
        _vote(0, "a", 2, 1, 1),
        _vote(1, "b", 2, 1, 1),
        _vote(2, None, 0, 0, 0),
        _vote(3, "b", 2, 2, 2),
    ]
    write_votes(place, votes)
    answers = [
        *(_answer(0, "selection", row, "b") for row in range(2)),
        *(_answer(0, "heldout", row, vote) for row, vote in enumerate(SAID[0])),
        *(_answer(1, "selection", row, "a") for row in range(2)),
        *(_answer(1, "heldout", row, vote) for row, vote in enumerate(SAID[1])),
    ]
    write_answers(place, answers)
    return place


def test_a_copy_has_the_figures_the_rewards_and_the_votes(directory, tmp_path):
    archive, place = tmp_path / "cell.zip", tmp_path / "unpacked"
    (directory / "rescored-other-v1.json").write_text('{"new_scorer": "other-v1"}')
    whole = load_run(directory)
    pack_run(whole, archive, {"command": "modnorm run", "commit": "abc"})
    run = unpack_run(archive, place)
    for name in ("results.json", "spec.json", "candidates.csv"):
        assert (place / name).read_bytes() == (directory / name).read_bytes()
    assert run.vote_counts().equals(whole.vote_counts())
    answers = run.answers_frame()
    selection = answers[answers["split"] == "selection"].sort_values(["row", "candidate"])
    assert selection["reward"].tolist() == [1.1, 0.1, 1.1, 0.1]
    assert json.loads((place / "origin.json").read_text())["commit"] == "abc"
    assert [each["new_scorer"] for each in run.rescored()] == ["other-v1"]


def test_a_converted_copy_has_no_agreement_where_an_expert_left_out_a_row(directory, tmp_path):
    archive, converted = tmp_path / "cell.zip", tmp_path / "converted.zip"
    last = (0, "heldout", 3)
    answers = list(read_answers(directory))
    kept = [each for each in answers if (each.candidate, each.split, each.row) != last]
    write_answers(directory, kept)
    votes = list(read_votes(directory))
    write_votes(directory, [*votes[:3], replace(votes[3], correct_support=1)])
    pack_run(load_run(directory), archive, {})
    with zipfile.ZipFile(archive) as file:
        members = {name: file.read(name) for name in file.namelist()}
    document = json.loads(members["results.json"])
    document["ensembles"][0]["agreement"] = None
    members["results.json"] = encode_json(document)
    origin = json.loads(members["origin.json"])
    digest = hashlib.sha256(members["results.json"]).hexdigest()
    members["origin.json"] = encode_json(origin | {"converted": {"results.json": digest}})
    with zipfile.ZipFile(converted, "w") as file:
        for name, content in members.items():
            file.writestr(name, content)

    run = unpack_run(converted, tmp_path / "unpacked")

    assert run.document == document
    counts = run.vote_counts()
    assert counts["correct"].tolist() == [False, True, False, True]
    assert frames.votes(run)["right_experts"].isna().all()


def test_a_copy_has_no_texts_and_no_machines(directory, tmp_path):
    archive = tmp_path / "cell.zip"
    pack_run(load_run(directory), archive, {})
    with zipfile.ZipFile(archive) as file:
        content = b"".join(file.read(name) for name in file.namelist())
    assert SECRET.encode() not in content
    assert b"host-7" not in content


def test_equal_runs_have_equal_copies(directory, tmp_path):
    for name in ("a.zip", "b.zip"):
        pack_run(load_run(directory), tmp_path / name, {"commit": "abc"})
    assert (tmp_path / "a.zip").read_bytes() == (tmp_path / "b.zip").read_bytes()


def test_votes_that_do_not_follow_from_the_answers_are_refused(directory, tmp_path):
    votes = [replace(vote, correct_support=2) for vote in read_votes(directory)]
    write_votes(directory, votes)
    with pytest.raises(InvalidInputError, match="do not follow from answers"):
        pack_run(load_run(directory), tmp_path / "cell.zip", {})


def test_a_damaged_copy_is_refused(directory, tmp_path):
    archive, changed = tmp_path / "cell.zip", tmp_path / "changed.zip"
    pack_run(load_run(directory), archive, {})
    with zipfile.ZipFile(archive) as file, zipfile.ZipFile(changed, "w") as other:
        for name in file.namelist():
            content = file.read(name)
            other.writestr(name, content.replace(b"index", b"Index"))
    with pytest.raises(InvalidInputError, match=r"is damaged: results\.json, candidates\.csv"):
        unpack_run(changed, tmp_path / "place")
    with zipfile.ZipFile(archive) as file, zipfile.ZipFile(changed, "w") as other:
        members = {name: file.read(name) for name in file.namelist()}
        origin = json.loads(members["origin.json"])
        origin["digests"]["../rescored.json"] = hashlib.sha256(b"{}").hexdigest()
        for name, content in {**members, "../rescored.json": b"{}"}.items():
            is_origin = name == "origin.json"
            other.writestr(name, encode_json(origin) if is_origin else content)
    with pytest.raises(InvalidInputError, match=r"is damaged: \.\./rescored\.json"):
        unpack_run(changed, tmp_path / "place")
    archive.write_bytes(b"no archive")
    with pytest.raises(InvalidInputError, match="cannot read"):
        unpack_run(archive, tmp_path / "other")
