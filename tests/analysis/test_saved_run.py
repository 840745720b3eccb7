from dataclasses import replace

import pytest

from modnorm.analysis.export import write_run
from modnorm.analysis.run import load_run
from modnorm.errors import InvalidInputError, NotFoundError, PreconditionError
from tests.faults import error_at


def test_an_unfinished_run_is_refused(claim, tmp_path):
    with pytest.raises(PreconditionError, match="only an experiment that succeeded") as raised:
        load_run(claim(tmp_path / "run"))
    assert "--server" in str(raised.value.remedy)


def test_a_distillation_names_its_searches(claim, tmp_path):
    place = claim(tmp_path / "run")
    (place / "distillation.json").write_text("{}")
    with pytest.raises(PreconditionError, match="is a distillation, not a search") as raised:
        load_run(place)
    assert f"{place / 'rounds' / '1'};" in str(raised.value.remedy)


def test_a_directory_of_several_runs_is_refused_with_their_names(claim, tmp_path):
    for name in ("small", "large"):
        claim(tmp_path / "runs" / name)
    with pytest.raises(InvalidInputError) as raised:
        load_run(tmp_path / "runs")
    assert str(raised.value.remedy).endswith(f"{tmp_path}/runs/large, {tmp_path}/runs/small")


@pytest.mark.parametrize(
    ("name", "fault"), [("absent", "does not exist"), (".", "is not a run directory")]
)
def test_what_is_no_run_is_refused_and_left_alone(name, fault, tmp_path):
    with pytest.raises(InvalidInputError, match=fault):
        load_run(tmp_path / name)
    assert list(tmp_path.iterdir()) == []


def test_a_run_that_was_stopped_at_its_start_can_be_resumed(tmp_path):
    (tmp_path / "run" / "state").mkdir(parents=True)
    with pytest.raises(InvalidInputError, match="has no results yet"):
        load_run(tmp_path / "run")
    (tmp_path / "run" / "radius.json").write_text("{}")
    with pytest.raises(InvalidInputError, match="is not a run directory"):
        load_run(tmp_path / "run")


@pytest.mark.parametrize(
    ("name", "damage", "read"),
    [
        ("candidates.csv", b"0,1", lambda run: run.candidates_frame),
        ("candidates.csv", b"\xff", lambda run: run.candidates_frame),
        ("votes.parquet", b"7", lambda run: run.vote_counts()),
        ("profile.json", b"\xff", lambda run: run.profile()),
        ("rows/heldout.jsonl", b"\xff", lambda run: run.rows("heldout")),
    ],
)
def test_a_damaged_file_is_refused_by_name(claim, run, tmp_path, name, damage, read):
    place = claim(tmp_path / "run")
    write_run(place, run)
    saved = load_run(place)
    (saved.path / "rows").mkdir(exist_ok=True)
    with (saved.path / name).open("ab") as file:
        file.write(damage)
    with pytest.raises(InvalidInputError, match=f"cannot read {saved.path / name}: ") as raised:
        read(saved)
    assert raised.value.field == "run"


def test_an_ensemble_that_a_run_lacks_is_refused_with_those_it_has(run, tmp_path):
    write_run(tmp_path, run)
    first = run.ensembles[0]
    listed = f"one of N={first.population} K={first.ensemble_size}"
    with error_at("k", "no ensemble N=17 K=3", kind=NotFoundError) as raised:
        load_run(tmp_path).votes(0, 17, 3)
    assert listed in str(raised.value.remedy)
    with error_at("n", "the run has no ensemble N=17", kind=NotFoundError):
        load_run(tmp_path).votes(population=17)
    with error_at("k", "the run has no ensemble K=17", kind=NotFoundError):
        load_run(tmp_path).votes(ensemble_size=17)
    write_run(tmp_path, replace(run, ensembles=(), votes={}))
    with error_at("n", "the run has no ensembles", kind=NotFoundError):
        load_run(tmp_path).ensemble()
