"""A finished run that was copied elsewhere, without its lab and its state."""

import json
import shutil

import pytest


@pytest.fixture
def copy(finished, tmp_path):
    """A finished run, copied without the state of its lab."""
    ignored = shutil.ignore_patterns("state", ".lock")
    return shutil.copytree(finished, tmp_path / "elsewhere" / "copy", ignore=ignored)


@pytest.fixture
def elsewhere(tmp_path):
    """Settings of a machine with an empty home and cache."""
    home = tmp_path / "home"
    home.mkdir()
    places = {"HOME": home, "XDG_CACHE_HOME": home / "cache", "MODNORM_CACHE_DIR": home / "lab"}
    return {name: str(place) for name, place in places.items()}


@pytest.fixture
def read(modnorm, copy, elsewhere):
    """Run a command on the copy; returns the document that it prints."""

    def read(command, *options):
        return json.loads(modnorm(command, copy, *options, "--json", **elsewhere).stdout)

    return read


def test_answers_and_votes_are_in_the_files(read, copy):
    results = json.loads((copy / "results.json").read_text())
    answers = read("answers")
    experts = {index for each in results["ensembles"] for index in each["experts"]}
    assert len(answers) == results["budget"]["total"] + 2 * 6
    assert {a["candidate"] for a in answers if a["split"] == "heldout"} == {-1, *experts}
    assert all(a["prompt"] and a["gold"] for a in answers)
    said = {(a["candidate"], a["row"]): a["vote"] for a in answers if a["split"] == "heldout"}
    votes = read("votes")
    assert len(votes) == 2 * 2 * 6
    for vote in votes:
        assert vote["votes"] == [said[expert, vote["row"]] for expert in vote["experts"]]
        assert vote["answer"] == (vote["counts"][0]["answer"] if vote["counts"] else None)
    for ensemble in results["ensembles"]:
        size = (ensemble["population"], ensemble["ensemble_size"])
        right = [v["correct"] for v in votes if (v["population"], v["ensemble_size"]) == size]
        assert sum(right) == ensemble["correct"]


def test_rescore_compare_analyze_and_export_need_nothing_else(
    read, modnorm, copy, elsewhere, tmp_path
):
    before = {path.name: path.read_bytes() for path in copy.iterdir() if path.is_file()}
    rescored = read("rescore", "--scorer", "gsm8k-v3")
    assert rescored["selection"] == {"total": 5 * 6, "changed": 0}
    assert read("compare")[0]["differs"] == []
    modnorm("analyze", copy, "--out", tmp_path / "analysis", **elsewhere)
    assert list((tmp_path / "analysis").rglob("*.csv"))
    exported = read("export", "--rank", 1, "--out", tmp_path / "best")
    best = json.loads(before["results.json"])["experts"][0]
    assert (exported["candidate"], exported["rank"]) == (best["index"], 1)
    assert exported["selection_reward"] == best["selection_reward"]
    written = json.loads((tmp_path / "best" / "candidate.json").read_text())
    assert written["seed"] == best["seed"]
    after = {path.name: path.read_bytes() for path in copy.iterdir() if path.is_file()}
    assert after.keys() - before.keys() == {"rescored-gsm8k-v3.json"}
    assert {name: after[name] for name in before} == before


def test_a_copied_run_is_not_run_again(copy, modnorm, write_spec):
    before = (copy / "timings.json").read_bytes()
    ended = modnorm("run", write_spec("small"), "--out", copy)
    assert "has the results of this spec, so nothing is run" in ended.stderr
    assert "N=4 K=2" in ended.stdout
    assert (copy / "timings.json").read_bytes() == before
    assert not (copy / "state").exists()
    other = write_spec("other", population__seed=7)
    refused = modnorm("run", other, "--out", copy, check=False)
    assert refused.returncode == 2
    assert "holds a run of another spec" in refused.stderr


def test_a_damaged_copy_names_what_helps(copy, modnorm, write_spec):
    with (copy / "answers.parquet").open("r+b") as file:
        file.truncate(100)
    refused = modnorm("answers", copy, check=False)
    assert refused.returncode == 2
    ended = modnorm("run", write_spec("small"), "--out", copy)
    for told in (refused.stderr, ended.stderr):
        assert "another --out runs" in told
