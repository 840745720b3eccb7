import json
import resource
import shutil
import signal
import subprocess

import pytest

from modnorm.analysis.run import load_run
from modnorm.radius.artifact import RadiusArtifact
from tests.end_to_end.stored_jobs import done, jobs
from verification.labs.waiting import HANG_SECONDS, wait_until

MODNORM = """
import os, runpy
print(os.getpid(), flush=True)
runpy.run_module("modnorm", run_name="__main__", alter_sys=True)
"""
"""The command line, which prints its process id first."""


def wait_for_jobs(has_ended, directory, count):
    """Wait until `count` jobs are done; fail if the run ends earlier."""
    wait_until(lambda: len(done(directory)) >= count or has_ended(), f"{count} jobs", pause=0.02)
    assert not has_ended()


@pytest.fixture(scope="module")
def killed(start_command, spec_file, tmp_path_factory):
    """The directory of a run that was killed when it had done three jobs."""
    directory = tmp_path_factory.mktemp("killed") / "run"
    run = start_command("run", spec_file, "--out", directory)
    wait_for_jobs(run.has_ended, directory, 3)
    run.process.kill()
    run.finish()
    return directory


@pytest.fixture
def interrupted(killed, tmp_path):
    """A copy of a run that was killed."""
    return shutil.copytree(killed, tmp_path / "run")


def test_a_run_leaves_results_tables_plots_and_a_report(finished):
    document = json.loads((finished / "results.json").read_text())
    assert document["candidates"] == {"total": 4, "scored": 4, "failed": []}
    sizes = [(found["population"], found["ensemble_size"]) for found in document["ensembles"]]
    assert sizes == [(2, 1), (2, 2), (4, 1), (4, 2)]
    assert len((finished / "candidates.csv").read_text().splitlines()) == 1 + 4
    assert not (finished / "state" / "runs").exists()  # its files are nowhere twice
    assert len(load_run(finished).vote_counts()) == 4 * 6
    assert (finished / "report.html").stat().st_size > 0
    assert list((finished / "plots").glob("*.png"))
    assert document["provenance"]["scorer"] == "gsm8k-v3"
    # The bundled model solves most word problems: a chance result would be 0.
    assert document["base"]["heldout_metric"] >= 0.5
    assert max(ensemble["metric"] for ensemble in document["ensembles"]) >= 0.5


def test_a_killed_run_goes_on_and_ends_in_the_same_bytes(
    modnorm, spec_file, interrupted, finished, results
):
    before = done(interrupted)
    assert not (interrupted / "results.json").exists()

    modnorm("run", spec_file, "--out", interrupted)

    after = done(interrupted)
    assert {name: after[name] for name in before} == before
    assert len(after) > len(before)
    assert results(interrupted) == results(finished)


def test_a_run_whose_disk_fails_says_so_and_goes_on_once_it_is_mended(
    modnorm, environment, spec_file, finished, results, python_code, tmp_path
):
    directory = tmp_path / "run"
    command = [*python_code, MODNORM, "run", spec_file, "--out", directory]
    # What a full disk ends must still be able to say so: on a pipe.
    pipe = subprocess.PIPE
    with subprocess.Popen(
        command, env=environment, stdout=pipe, stderr=pipe, text=True
    ) as process:
        assert process.stdout is not None
        pid = int(process.stdout.readline())
        wait_for_jobs(lambda: process.poll() is not None, directory, 3)
        _, hard = resource.prlimit(pid, resource.RLIMIT_FSIZE)
        resource.prlimit(pid, resource.RLIMIT_FSIZE, (0, hard))
        _, err = process.communicate(timeout=HANG_SECONDS)
    assert process.returncode == 1
    told = [line for line in err.splitlines() if not line.startswith(("small: ", "log: ", "load"))]
    assert len(told) == 1, err
    assert f"{directory}/state/modnorm.db cannot be used: disk I/O error" in told[0]
    before = done(directory)

    modnorm("run", spec_file, "--out", directory)

    after = done(directory)
    assert {name: after[name] for name in before} == before
    assert len(before) >= 3
    assert results(directory) == results(finished)


def test_a_finished_run_is_told_again_without_work(modnorm, spec_file, finished, results):
    rows, files = jobs(finished), results(finished)
    again = modnorm("run", spec_file, "--out", finished, "--json")
    assert json.loads(again.stdout) == json.loads(files["results.json"])
    assert jobs(finished) == rows
    assert results(finished) == files


def test_edited_rows_are_refused_in_the_same_directory(modnorm, write_spec, tmp_path):
    rows = tmp_path / "rows.jsonl"
    rows.write_text(json.dumps({"question": "1 and 2?", "answer": "3"}))
    spec_file = write_spec(
        "edited",
        method={"name": "randopt", "sigma": 0.005},
        population={"size": 1},
        task__selection=str(rows),
    )
    modnorm("run", spec_file, "--out", tmp_path / "run")
    rows.write_text(json.dumps({"question": "1 and 2?", "answer": "4"}))
    ended = modnorm("run", spec_file, "--out", tmp_path / "run", check=False)
    assert ended.returncode == 2
    assert ended.stderr.splitlines()[-1].startswith(f"error: {spec_file}:")
    assert ": task.selection: " in ended.stderr.splitlines()[-1]


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_an_interruption_says_how_to_go_on(start_command, write_spec, tmp_path, number, code):
    spec_file = write_spec("long", population__size=500, population__prefixes=[])
    directory = tmp_path / "run"
    run = start_command("run", spec_file, "--out", directory)
    wait_for_jobs(run.has_ended, directory, 1)
    assert run.interrupt(number) == code
    assert "the same command resumes" in run.stderr
    assert "Traceback" not in run.stderr
    assert {row[0] for row in jobs(directory).values()} <= {"done", "pending"}


def test_tuning_selects_the_best_mean_can_be_refined_and_is_named_by_the_spec(
    modnorm, write_spec, tmp_path
):
    grid_of, run = tmp_path / "grid", tmp_path / "run"
    spec_file = write_spec(
        "tuned",
        method={"name": "randopt", "sigma": {"artifact": str(grid_of / "radius.json")}},
        population={"size": 2, "ensemble_sizes": [1]},
        task__selection={"source": "bundled:word-problems-selection", "limit": 4},
    )
    rows = {"source": "bundled:word-problems-selection", "offset": 8, "limit": 4}
    grid = ("--seeds", "39,40", "--heldout", json.dumps(rows), "--out", grid_of)
    modnorm("tune", spec_file, "--radii", "0.02", *grid)
    before = done(grid_of)
    ended = modnorm("tune", spec_file, "--radii", "0.02,0.03", *grid, "--json")
    shown = json.loads(ended.stdout)
    document = shown["artifact"]
    assert [len(one["trials"]) for one in document["radii"]] == [2, 2]
    assert document["settings"]["development"].items() >= rows.items()
    means = {one["radius"]: one["mean"] for one in document["radii"]}
    best = max(means.values())
    assert document["radius"] == min(radius for radius in means if means[radius] == best)
    after = done(grid_of)
    assert {name: after[name] for name in before} == before
    assert RadiusArtifact.load(grid_of / "radius.json").digest == shown["digest"]

    modnorm("run", spec_file, "--out", run)
    method = json.loads((run / "results.json").read_text())["spec"]["method"]
    assert method["radius"] == document["radius"]
    assert method["radius_source"]["artifact"] == shown["digest"]
    assert method["radius_source"]["model_digest"] == document["model"]["digest"]


def test_the_spec_that_init_writes_runs(modnorm, tmp_path):
    """With shorter answers to fewer rows; tests/cli/test_init.py validates it as it is."""
    spec = tmp_path / "spec.yaml"
    assert modnorm("init", spec).returncode == 0
    text = spec.read_text()
    for field, fewer in (("limit: 64", "limit: 2"), ("limit: 50", "limit: 2"), ("128", "4")):
        assert text.count(field) == 1
        text = text.replace(field, fewer)
    spec.write_text(text)
    document = json.loads(modnorm("run", spec, "--out", tmp_path / "run", "--json").stdout)
    assert document["candidates"]["total"] == 12
    sizes = [(each["population"], each["ensemble_size"]) for each in document["ensembles"]]
    assert sizes == [(6, 1), (6, 3), (6, 5), (12, 1), (12, 3), (12, 5)]
    assert modnorm("show", tmp_path / "run").returncode == 0


def test_a_run_that_the_lab_alone_can_refuse_leaves_nothing(modnorm, write_spec, tmp_path):
    out = tmp_path / "out"
    spec = write_spec("long", task__max_tokens=2040)  # more than the model has positions
    ended = modnorm("run", spec, "--out", out, "--json", check=False)
    assert ended.returncode == 2
    assert json.loads(ended.stderr.splitlines()[-1])["field"] == "task.selection"
    assert not out.exists()
