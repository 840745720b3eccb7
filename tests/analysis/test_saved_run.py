import json

import pytest

from modnorm.analysis.export import write_run
from modnorm.analysis.run_files import read_vote_lines
from modnorm.analysis.saved_run import SavedRun
from modnorm.errors import InvalidInputError, PreconditionError


@pytest.fixture
def claim(spec):
    """Make a directory that holds nothing but its spec."""

    def make(path):
        path.mkdir(parents=True)
        (path / "spec.json").write_text(json.dumps(spec.model_dump(mode="json")))
        return path

    return make


def test_an_unfinished_run_has_a_spec_and_nothing_else(claim, spec, tmp_path):
    run = SavedRun(claim(tmp_path / "run"))
    assert run.spec == spec
    for read in (run.answers, run.votes, run.descriptors, run.scale_map, run.lineage):
        with pytest.raises(PreconditionError, match="only an experiment that succeeded") as raised:
            read()
        assert "--server" in str(raised.value.remedy)


def test_a_distillation_names_its_searches(claim, tmp_path):
    run = SavedRun(claim(tmp_path / "run"))
    (tmp_path / "run" / "distillation.json").write_text("{}")
    with pytest.raises(PreconditionError, match="is a distillation, not a search") as raised:
        run.answers()
    assert f"{tmp_path / 'run' / 'rounds' / '1'};" in str(raised.value.remedy)


def test_a_directory_of_several_runs_is_refused_with_their_names(claim, tmp_path):
    for name in ("small", "large"):
        claim(tmp_path / "runs" / name)
    with pytest.raises(InvalidInputError) as raised:
        SavedRun(tmp_path / "runs")
    assert str(raised.value.remedy).endswith(f"{tmp_path}/runs/large, {tmp_path}/runs/small")


@pytest.mark.parametrize(
    ("name", "fault"), [("absent", "there is no directory"), (".", "is not a run directory")]
)
def test_what_is_no_run_is_refused_and_left_alone(name, fault, tmp_path):
    with pytest.raises(InvalidInputError, match=fault):
        SavedRun(tmp_path / name)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("name", "damage", "read"),
    [
        ("candidates.csv", b"0,1", lambda run: run.candidates),
        ("candidates.csv", b"\xff", lambda run: run.candidates),
        ("votes.jsonl", b"7", lambda run: read_vote_lines(run.path)),
        ("votes.jsonl", b'{"row": ', lambda run: read_vote_lines(run.path)),
        ("votes.jsonl", b"\xff", lambda run: read_vote_lines(run.path)),
        ("profile.json", b"\xff", lambda run: run.profile()),
        ("rows/heldout.jsonl", b"\xff", lambda run: run.rows("heldout")),
    ],
)
def test_a_damaged_file_is_refused_by_name(claim, run, tmp_path, name, damage, read):
    saved = SavedRun(claim(tmp_path / "run"))
    write_run(saved.path, run)
    (saved.path / "rows").mkdir(exist_ok=True)
    with (saved.path / name).open("ab") as file:
        file.write(damage)
    with pytest.raises(InvalidInputError, match=f"cannot read {saved.path / name}: ") as raised:
        read(saved)
    assert raised.value.field == "run"
