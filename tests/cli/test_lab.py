import json

import grpc
import pytest
import yaml

from modnorm.cli.run import _search
from modnorm.client.run_directory import RunDirectory
from modnorm.errors import EvaluationError, UnavailableError
from modnorm.v1 import experiment_pb2 as experiments
from modnorm.wire.conversions import spec_to_proto

SUCCEEDED = experiments.EXPERIMENT_STATE_SUCCEEDED
FAILED = experiments.EXPERIMENT_STATE_FAILED
RESULTS = {
    "progress": experiments.Progress(jobs_done=3, jobs_total=5, best_reward=0.5),
    "base": experiments.BaseResult(heldout_metric=0.125),
    "ensembles": [
        experiments.EnsembleResult(
            population=4, ensemble_size=2, experts=[1, 0], metric=0.5, correct=1, rows=2
        )
    ],
}


@pytest.fixture
def lab(serve, servicer, spec):
    """Serve one experiment in a state; returns the options that name the server.

    Its results are there unless other fields are given.
    """

    def start(state, error="", name=spec.name, **fields):
        experiment = experiments.Experiment(
            id="e1",
            spec=spec_to_proto(spec.model_copy(update={"name": name})),
            state=state,
            error=error,
            **(fields or RESULTS),
        )

        def watch(request, context):
            yield experiments.WatchExperimentResponse(cursor=1, state=state, message="created")

        target = serve(
            servicer(
                CreateExperiment=lambda *_: experiments.CreateExperimentResponse(
                    experiment=experiment
                ),
                GetExperiment=lambda *_: experiments.GetExperimentResponse(experiment=experiment),
                CancelExperiment=lambda *_: experiments.CancelExperimentResponse(
                    experiment=experiment
                ),
                ListExperiments=lambda *_: experiments.ListExperimentsResponse(
                    experiments=[experiment]
                ),
                WatchExperiment=watch,
                ListRunFiles=lambda *_: experiments.ListRunFilesResponse(),
            )
        )
        return "--server", target

    return start


@pytest.fixture
def spec_file(tmp_path, spec):
    path = tmp_path / "small.yaml"
    path.write_text(yaml.safe_dump(spec.model_dump(mode="json")))
    return path


@pytest.mark.parametrize("state", [experiments.EXPERIMENT_STATE_PENDING, SUCCEEDED])
def test_submit_prints_the_id_alone_for_other_commands_to_take(modnorm, lab, spec_file, state):
    code, out, err = modnorm("submit", spec_file, *lab(state), "--request-id", "mine")
    assert (code, out) == (0, "e1\n")
    assert ("it is succeeded" in err) == (state == SUCCEEDED)


def test_a_fresh_experiment_of_a_request_id_is_refused(refusal, lab, spec_file):
    err = refusal("submit", spec_file, *lab(SUCCEEDED), "--again", "--request-id", "mine")
    assert err.startswith("error: again: ")


@pytest.mark.parametrize(
    ("state", "error", "told"),
    [
        (experiments.EXPERIMENT_STATE_FAILED, "too many failed candidates", "too many failed"),
        (experiments.EXPERIMENT_STATE_CANCELLED, "", "was cancelled"),
    ],
)
@pytest.mark.parametrize("output", [(), ("--json",)])
def test_a_bad_end_is_exit_code_1_with_the_reason(modnorm, lab, state, error, told, output):
    code, _, err = modnorm("watch", "e1", *lab(state, error), *output)
    assert code == 1
    assert told in err


@pytest.mark.parametrize("command", ["watch", "show"])
def test_a_finished_experiment_is_shown_with_its_ensembles(printed, gsm8k_lab, command):
    out = printed(command, "e1", "--server", gsm8k_lab)
    assert out.startswith("e1  succeeded\n")
    assert "N=4 K=2" in out
    assert "50.0 %" in out


def test_answers_are_fetched_only_for_a_command_that_reads_them(
    printed, modnorm_json, gsm8k_lab, tmp_path
):
    source = ("e1", "--server", gsm8k_lab)
    printed("show", *source)
    assert not list((tmp_path / "cache").rglob("*.parquet"))
    assert modnorm_json("answers", *source)
    assert "N=4 K=2" in printed("show", *source)


@pytest.mark.parametrize(
    ("command", "fetched"), [("candidates", []), ("compare", ["votes.parquet"])]
)
def test_of_an_experiment_only_what_a_command_reads_is_fetched(
    printed, gsm8k_lab, tmp_path, monkeypatch, command, fetched
):
    monkeypatch.setenv("MODNORM_SERVER", gsm8k_lab)
    printed(command, "8f14e45f-ceea-467f-a9a4-6f2d1b1f2a10")
    assert [each.name for each in (tmp_path / "cache").rglob("*.parquet")] == fetched


@pytest.mark.usefixtures("quick_retries")
def test_a_lab_that_is_away_for_a_moment_is_followed_on(
    printed, serve_directory, gsm8k_experiment, gsm8k_stored
):
    asked = []

    def get(request, context):
        asked.append(request.id)
        if 1 < len(asked) < 7:
            context.abort(grpc.StatusCode.UNAVAILABLE, "starting")
        return experiments.GetExperimentResponse(experiment=gsm8k_experiment)

    def watch(request, context):
        for cursor, state in enumerate((experiments.EXPERIMENT_STATE_SELECTING, SUCCEEDED), 1):
            yield experiments.WatchExperimentResponse(cursor=cursor, state=state)

    target = serve_directory(
        gsm8k_experiment, gsm8k_stored, GetExperiment=get, WatchExperiment=watch
    )
    out = printed("watch", "e1", "--server", target)
    assert "succeeded" in out


def test_events_are_json_lines(printed, lab):
    out = printed("watch", "e1", *lab(SUCCEEDED), "--json")
    assert [json.loads(line)["cursor"] for line in out.splitlines()] == ["1"]


def test_the_list_shows_progress_and_best(printed, modnorm_json, lab):
    server = lab(experiments.EXPERIMENT_STATE_SELECTING)
    out = printed("list", *server)
    assert out.splitlines()[1].split()[:5] == ["e1", "small", "selecting", "3/5", "0.5000"]
    assert "note" not in out
    assert modnorm_json("list", *server)[0]["id"] == "e1"


@pytest.mark.parametrize(
    ("state", "fields", "note"),
    [
        (
            experiments.EXPERIMENT_STATE_SELECTING,
            {"waits_for": "no evaluator has asked for work"},
            "waiting: no evaluator has asked for work",
        ),
        (
            experiments.EXPERIMENT_STATE_FAILED,
            {"error": "the model is gone", "remedy": "fetch it"},
            "the model is gone (fetch it)",
        ),
    ],
)
def test_the_list_says_why_an_experiment_waits_or_failed(printed, lab, state, fields, note):
    out = printed("list", *lab(state, **fields))
    heading, line = out.splitlines()
    assert heading.split()[-1] == "note"
    assert line.rstrip().endswith(f"  {note}")


@pytest.mark.parametrize("odd", ["runs[/tmp] :smile:"])
def test_names_and_reasons_are_shown_as_they_are(printed, lab, odd):
    server = lab(experiments.EXPERIMENT_STATE_FAILED, error=f"no model at {odd}", name=odd)
    listed = printed("list", *server)
    assert odd in listed
    shown = printed("show", "e1", *server)
    assert f"no model at {odd}" in shown


def test_a_name_commands_no_terminal(modnorm, lab):
    server = lab(experiments.EXPERIMENT_STATE_SUCCEEDED, name="\x1b]0;mine\x07\nse1 caf\xe9")
    for words in (("list",), ("watch", "e1")):
        _, out, err = modnorm(*words, *server)
        assert "\x1b" not in out + err
        assert r"\x1b]0;mine\x07\nse1 café" in out + err


@pytest.mark.parametrize(
    "state", [experiments.EXPERIMENT_STATE_SELECTING, experiments.EXPERIMENT_STATE_CANCELLED]
)
def test_show_tells_how_far_an_experiment_without_results_is(printed, lab, state):
    progress = experiments.Progress(
        jobs_done=3,
        jobs_total=9,
        jobs_failed=1,
        jobs_running=2,
        best_reward=0.5,
        threshold_reward=0.25,
    )
    base = experiments.BaseResult(selection_reward=0.125)
    out = printed("show", "e1", *lab(state, progress=progress, base=base))
    jobs = "jobs 3/9, failed 1, running 2"
    rewards = "best reward 0.5000, rank 2 reward 0.2500, base reward 0.1250"
    assert out.splitlines()[1:] == [f"{jobs}, {rewards}"]


def test_files_that_were_broken_off_are_written_by_the_same_command(
    modnorm, gsm8k_lab, tmp_path, monkeypatch
):
    def break_off(client, experiment_id, directory):
        (directory / "votes.parquet").touch()
        raise UnavailableError("the lab is away")

    command = ("show", "e1", "--server", gsm8k_lab, "--out", tmp_path / "run")
    with monkeypatch.context() as patched:
        patched.setattr("modnorm.client.fetching.save_run", break_off)
        assert modnorm(*command)[0] == 1
    assert modnorm(*command)[0] == 0
    assert (tmp_path / "run" / "report.html").is_file()


def test_a_failed_search_of_a_distillation_is_resumed_by_the_same_command(
    serve, servicer, spec, tmp_path
):
    pending = experiments.Experiment(id="e1", spec=spec_to_proto(spec))
    failed = experiments.Experiment(id="e1", state=FAILED, error="the disk is full")

    def watch(request, context):
        yield experiments.WatchExperimentResponse(cursor=1, state=FAILED, message="created")

    service = servicer(
        CreateExperiment=lambda *_: experiments.CreateExperimentResponse(experiment=pending),
        GetExperiment=lambda *_: experiments.GetExperimentResponse(experiment=failed),
        WatchExperiment=watch,
    )
    with pytest.raises(EvaluationError) as caught:
        _search(tmp_path, serve(service), spec, RunDirectory(tmp_path / "round-0"))
    assert caught.value.remedy == "fix the cause; then the same command resumes here"
