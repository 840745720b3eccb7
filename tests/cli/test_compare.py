from dataclasses import replace

import pytest

from modnorm.analysis import write_run


@pytest.fixture(scope="module")
def runs(make_run, tmp_path_factory):
    """Two finished runs, the second without skill, and some made under other conditions.

    No test changes their directories.
    """
    folder = tmp_path_factory.mktemp("runs")
    first = make_run(prefixes=(24,), sizes=(1, 5))
    votes = {
        key: [replace(vote, correct=False) for vote in rows] for key, rows in first.votes.items()
    }
    wrong = replace(
        first,
        votes=votes,
        ensembles=[replace(each, metric=0.0, correct=0) for each in first.ensembles],
    )

    def made_from(**changes):
        return replace(first, provenance={**first.provenance, **changes})

    written = {
        "good": first,
        "wrong": wrong,
        "other": made_from(heldout_digest="cd" * 32),
        "reworded": made_from(prompts_digest="cd" * 32),
        "old": made_from(prompts_digest=""),
    }
    for name, run in written.items():
        write_run(folder / name, run)
    return {name: folder / name for name in written}


def test_runs_stand_in_columns_with_intervals(modnorm, runs):
    code, out, err = modnorm("compare", runs["good"], runs["wrong"])
    assert code == 0, err
    lines = {line.split("  ")[0]: " ".join(line.split()) for line in out.splitlines()}
    assert lines["base"] == "base 20.0 % [11.8, 31.8] 20.0 % [11.8, 31.8]"
    assert lines["rank 1 by selection"].count("%") == 2
    assert lines["K=5"].endswith("0.0 % [0.0, 6.0]")


def test_words_say_that_the_data_separates_them(modnorm, runs):
    _, out, _ = modnorm("compare", runs["good"], runs["wrong"])
    assert "At N=24 K=5 the data separates good and wrong: +" in out
    assert "The data separates them at 2 of 2 (N, K)" in out
    _, out, _ = modnorm("compare", runs["good"], runs["good"])
    assert "the data does not separate good and good: no difference" in out


def test_runs_on_other_rows_are_not_paired(modnorm, runs):
    code, out, err = modnorm("compare", runs["good"], runs["other"])
    assert code == 0
    assert "good and other are not paired: held-out rows differ." in out
    assert "not comparable: other differs from good in held-out rows" in err


def test_runs_with_other_prompts_are_flagged(modnorm, runs):
    code, _, err = modnorm("compare", runs["good"], runs["reworded"])
    assert code == 0
    assert err == "not comparable: reworded differs from good in prompts\n"


def test_prompts_that_are_not_recorded_are_named(modnorm, runs):
    code, _, err = modnorm("compare", runs["good"], runs["old"])
    assert code == 0
    assert err == "the prompts of old are not recorded, so they are not compared\n"


def test_json_holds_the_pairs_and_the_verdict(modnorm_json, runs):
    first, second = modnorm_json("compare", runs["good"], runs["wrong"])
    assert (first["paired"], first["verdict"]) == ([], None)
    assert [pair["ensemble_size"] for pair in second["paired"]] == [1, 5]
    assert all(pair["separated"] and pair["only_other"] == 0 for pair in second["paired"])
    assert second["intervals"]["5"] == pytest.approx([0.0, 0.0602], abs=1e-3)
