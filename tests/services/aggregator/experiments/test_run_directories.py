"""The directory of a finished experiment, as it is stored, served and removed."""

import errno
import hashlib
import json
import tracemalloc
from dataclasses import asdict

import pytest

from modnorm.analysis.run import load_run
from modnorm.errors import NotFoundError, PreconditionError, UnavailableError
from modnorm.services.aggregator.experiments.run_writing import ensemble_votes, overlap
from modnorm.services.aggregator.storage.dialects import insert_rows
from modnorm.services.aggregator.storage.tables import Split, Vote
from modnorm.tasks import get_task
from modnorm.tasks.columns import encode_rows
from modnorm.v1 import experiment_pb2 as experiments
from verification.labs.waiting import HANG_SECONDS


def test_a_directory_holds_what_the_database_does(world, directories, finished):
    run, record = load_run(directories.of(finished)), world.experiments.get(finished)
    assert run.spec == record.experiment.spec
    assert run.provenance["scorer"] == record.experiment.scorer
    jobs = world.experiments.candidates(finished)
    assert [each.selection_reward for each in run.candidates] == [
        each.selection.metric for each in jobs[1:]
    ]
    assert [each.seed for each in run.candidates] == [each.candidate.seed for each in jobs[1:]]
    assert [index for index, _ in run.descriptors()] == [-1, 0, 1, 2, 3]
    assert [(each.metric, each.correct) for each in run.ensembles] == [
        (each.metric, each.correct) for each in record.ensembles
    ]
    stored = world.experiments.answers(finished, -1, Split.HELDOUT)
    answers = list(run.answers(-1, "heldout"))
    assert [each.completion for each in answers] == [each.completion for each in stored]
    splits = [(each.candidate, each.split) for each in run.answers()]
    assert splits == sorted(splits, key=lambda each: (each[0], each[1] != "selection"))
    for each in record.ensembles:
        votes = run.votes(None, *each.place)
        assert sum(vote.correct for vote in votes) == each.correct
    timings = run.timings()
    assert timings["experiment"] == finished
    assert {"experiment", "phases", "candidates"} <= timings.keys()


def test_votes_are_read_in_little_memory(world, finished):
    """A run of 300 ensembles on 1,319 rows has 400,000 votes; an aggregator has 1 GiB."""
    count, record = 20_000, world.experiments.get(finished)
    (_, stored), *_ = ensemble_votes(world.database, record).items()
    key = {"experiment_id": finished, "population": 4, "ensemble_size": 1}
    votes = ({**key, "row": 9 + row, **asdict(stored[0])} for row in range(count))
    with world.database.write() as session:
        insert_rows(session, Vote, votes)
    tracemalloc.start()
    read = ensemble_votes(world.database, record)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert read[4, 1] == [*stored, *[stored[0]] * count]
    assert peak < 500 * count


def test_a_killed_aggregator_leaves_nothing_that_is_served(
    world, directories, finished, monkeypatch
):
    def killed(directory, database, record):
        (directory / "results.json").write_text("half")
        raise KeyboardInterrupt

    writing = "modnorm.services.aggregator.experiments.run_writing.write_directory"
    with monkeypatch.context() as patch:
        patch.setattr(writing, killed)
        with pytest.raises(KeyboardInterrupt):
            directories.of(finished)
    place = directories.of(finished)
    assert json.loads((place / "results.json").read_bytes())["schema"]
    assert [each.name for each in place.parent.iterdir()] == [place.name]
    made = {each.name: each.digest for each in directories.files(finished)}
    assert {each.name: each.digest for each in directories.files(finished)} == made


def test_a_directory_that_fills_the_disk_is_removed(directories, finished, monkeypatch, tmp_path):
    def fill(directory, database, record):
        (directory / "answers.parquet").write_text("half")
        raise OSError(errno.ENOSPC, "no space left on device")

    writing = "modnorm.services.aggregator.experiments.run_writing.write_directory"
    monkeypatch.setattr(writing, fill)
    with pytest.raises(UnavailableError, match="no space"):
        directories.of(finished)
    assert not list((tmp_path / "runs").iterdir())


@pytest.mark.parametrize(
    ("end", "told"),
    [
        (lambda world, one: None, "selecting .*watch"),
        (lambda world, one: world.experiments.cancel(one), "cancelled .*again"),
        (lambda world, one: world.experiments.fail(one, "no disk"), "failed: no disk"),
    ],
)
def test_an_experiment_without_results_has_no_directory(world, directories, end, told):
    experiment = world.select()
    end(world, experiment)
    with pytest.raises(PreconditionError, match=told) as raised:
        directories.of(experiment)
    assert raised.value.field == "run"


async def test_files_are_served_by_name_and_offset(start_lab, spec):
    async with start_lab() as lab:
        created = await lab.create(spec())
        await lab.finish(created.id, lab.worker())
        listed = await lab.experiments.ListRunFiles(
            experiments.ListRunFilesRequest(experiment_id=created.id), timeout=HANG_SECONDS
        )

        for file in listed.files:
            content = await lab.file(created.id, file.name)
            assert len(content) == file.size
            assert hashlib.sha256(content).hexdigest() == file.digest
        whole = await lab.file(created.id, "results.json")
        assert await lab.file(created.id, "results.json", len(whole) - 3) == whole[-3:]
        for beyond in (len(whole), 2**63 - 1):
            assert await lab.file(created.id, "results.json", beyond) == b""
        for name in ("nothing", "../results.json", "", "rows"):
            async with lab.raises(NotFoundError, "name"):
                await lab.file(created.id, name)


def test_shared_rows_are_those_with_equal_prompts_where_the_task_is_installed():
    selection = encode_rows([{"question": "a", "answer": "1"}, {"question": "b", "answer": "1"}])
    heldout = encode_rows([{"question": "a", "answer": "2"}, {"question": "b", "answer": "1"}])
    assert overlap(get_task("gsm8k"), selection, heldout) == 2
    assert overlap(None, selection, heldout) == 1
