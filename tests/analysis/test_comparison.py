from dataclasses import replace

import pytest

from modnorm.analysis.comparison import compare_runs
from modnorm.analysis.export import write_run
from modnorm.analysis.run import load_run
from modnorm.errors import InvalidInputError

pytestmark = pytest.mark.usefixtures("without_plots")


@pytest.fixture
def written(tmp_path):
    def write(name, run):
        write_run(tmp_path / name, run)
        return load_run(tmp_path / name)

    return write


@pytest.fixture(scope="module")
def unchanged(make_run, tmp_path_factory):
    """Results of the run that others differ from."""
    directory = tmp_path_factory.mktemp("runs") / "a"
    write_run(directory, make_run())
    return load_run(directory)


def test_runs_stand_side_by_side(make_run, written):
    first = written("mn", make_run())
    second = written("randopt", make_run(method="randopt", prefixes=(24,), sizes=(1, 5)))
    rows = compare_runs([first, second])
    assert [row["run"] for row in rows] == ["mn", "randopt"]
    assert [row["method"] for row in rows] == ["modular_norm", "randopt"]
    assert [row["population"] for row in rows] == [48, 24]
    assert [row["differs"] for row in rows] == [[], []]
    assert list(rows[0]["ensembles"]) == [1, 5, 10]
    assert list(rows[1]["ensembles"]) == [1, 5]
    for row in rows:
        assert row["base"] == 0.2
        assert row["rank_1"] == row["ensembles"][1]
        assert row["rank_1"] is not None
        assert "best_expert" not in row


@pytest.mark.parametrize(
    ("change", "name"),
    [
        ({"provenance": {"scorer": "countdown-v1"}}, "scorer"),
        ({"provenance": {"heldout_digest": "cd" * 32}}, "held-out rows"),
        ({"provenance": {"prompts_digest": "cd" * 32}}, "prompts"),
        ({"provenance": {"selection_digest": "cd" * 32}}, "selection rows"),
        ({"provenance": {"model_digest": "cd" * 32}}, "model"),
        ({"spec": {"task": {"name": "gsm8k"}}}, "task"),
        ({"spec": {"population": {"noise": "randopt-reseed-v1"}}}, "noise"),
        ({"spec": {"engine": {"numerics": "batch_invariant"}}}, "numerics"),
    ],
)
def test_runs_that_cannot_be_compared_are_flagged(run, unchanged, written, change, name):
    other = replace(
        run,
        spec={**run.spec, **change.get("spec", {})},
        provenance={**run.provenance, **change.get("provenance", {})},
    )
    rows = compare_runs([unchanged, written("b", other)])
    assert rows[0]["differs"] == []
    assert name in rows[1]["differs"]


def test_prompts_of_other_rows_are_not_a_second_difference(run, unchanged, written):
    changed = {"heldout_digest": "cd" * 32, "prompts_digest": "cd" * 32}
    other = replace(run, provenance={**run.provenance, **changed})
    rows = compare_runs([unchanged, written("b", other)])
    assert rows[1]["differs"] == ["held-out rows"]


def test_profiles_differ_only_where_both_runs_use_one(run, written):
    def using(profile):
        used = replace(run, provenance={**run.provenance, "profile_digest": profile})
        return written(profile or "none", used)

    one, other, none = using("ab" * 32), using("cd" * 32), using("")
    assert [row["differs"] for row in compare_runs([one, one, other, none])] == [
        [], [], ["profile"], []
    ]  # fmt: skip
    assert [row["differs"] for row in compare_runs([none, one, other])] == [[], [], []]


@pytest.mark.parametrize(
    ("name", "cap", "differs"),
    [
        ("countdown", 1024, []),
        ("countdown", 512, ["completion cap"]),
        ("of another machine", 1024, ["completion cap"]),
    ],
)
def test_a_cap_that_is_the_tasks_own_is_the_same_as_none(run, written, name, cap, differs):
    def capped(max_tokens):
        task = {**run.spec["task"], "name": name, "max_tokens": max_tokens}
        return written(str(max_tokens), replace(run, spec={**run.spec, "task": task}))

    rows = compare_runs([capped(None), capped(cap)])
    assert [row["differs"] for row in rows] == [[], differs]


@pytest.mark.parametrize("content", ["{", "[]", '{"schema": "other"}'])
def test_damaged_results_are_refused(tmp_path, content):
    (tmp_path / "results.json").write_text(content)
    with pytest.raises(InvalidInputError, match=r"results\.json"):
        load_run(tmp_path)
