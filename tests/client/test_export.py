import json
from dataclasses import asdict

import grpc
import pytest

from modnorm.analysis.answers import AnswerFilter
from modnorm.analysis.export import write_run
from modnorm.analysis.saved_run import SavedRun
from modnorm.analysis.votes import VoteFilter
from modnorm.cli.results import write_results
from modnorm.client.client import Client
from modnorm.client.export import fetch_run, save_run
from modnorm.client.lab_run import LabRun
from modnorm.client.rundir import RunDirectory
from modnorm.errors import PreconditionError, UnavailableError
from modnorm.search.stopping import Interval
from modnorm.search.voting import AnswerCount
from modnorm.tasks.columns import encode_rows
from modnorm.v1 import common_pb2 as common
from modnorm.v1 import evaluation_pb2 as evaluation
from modnorm.v1 import experiment_pb2 as experiments
from modnorm.wire.conversions import spec_to_proto
from modnorm.wire.run_messages import timings

ROWS = encode_rows({"numbers": [number, 2], "target": 24} for number in range(1, 5))
VOTE = experiments.Vote(row=0, answer="24", correct=True, valid=2, support=2, correct_support=2)


def candidate(index, reward):
    scored = reward is not None
    return experiments.Candidate(
        index=index,
        descriptor=common.Descriptor(seed=100 + index),
        state=experiments.CANDIDATE_STATE_SCORED if scored else experiments.CANDIDATE_STATE_FAILED,
        selection_reward=reward,
        heldout_metric=reward,
        selection_tokens=7,
        selection_answers=3 if scored else 0,
        heldout_answers=2 if index in {-1, 0, 2} else 0,
        attempts=1,
        worker="here",
        seconds=1.5,
        error="" if scored else "not finite",
        environment={"torch": "2.11" if index < 2 else "2.13", "device": "cpu"} if scored else {},
        heldout_environment={"torch": "2.13", "device": "cpu"} if index in {-1, 2} else {},
    )


def answer(index, row):
    return evaluation.Answer(
        row=row, completion=f"{index} says 24", reward=1.1, vote="24", correct=row == 0, tokens=3
    )


def event(cursor, seconds, state):
    made = experiments.WatchExperimentResponse(cursor=cursor, state=state)
    made.time.FromSeconds(seconds)
    return made


@pytest.fixture
def experiment(spec):
    made = experiments.Experiment(
        id="e1",
        request_id="r1",
        spec=spec_to_proto(spec),
        state=experiments.EXPERIMENT_STATE_SUCCEEDED,
        provenance=experiments.Provenance(
            model_digest="m", selection_rows=8, selection_digest="s", heldout_revision="c"
        ),
        base=experiments.BaseResult(selection_reward=0.125, heldout_metric=0.0),
        ensembles=[
            experiments.EnsembleResult(
                population=4, ensemble_size=2, experts=[2, 0], metric=1.0, correct=1, rows=1
            )
        ],
    )
    made.create_time.FromSeconds(1)
    made.end_time.FromSeconds(9)
    return made


@pytest.fixture
def client(serve, servicer):
    def candidates(request, context):
        rewards = (0.5, 0.25, 0.75, None)
        found = [candidate(-1, 0.125), *(candidate(i, r) for i, r in enumerate(rewards))]
        return experiments.ListCandidatesResponse(candidates=found)

    def votes(request, context):
        silent = experiments.Vote(row=1, correct=False)
        return experiments.ListVotesResponse(votes=[VOTE, silent])

    def watch(request, context):
        yield event(1, 10, experiments.EXPERIMENT_STATE_SELECTING)
        yield event(2, 14, experiments.EXPERIMENT_STATE_VOTING)
        yield event(3, 15, experiments.EXPERIMENT_STATE_SUCCEEDED)

    def artifact(request, context):
        if request.kind == experiments.ARTIFACT_KIND_LINEAGE:
            context.abort(grpc.StatusCode.UNAVAILABLE, "away")
        selection = request.kind == experiments.ARTIFACT_KIND_SELECTION_ROWS
        rows = ROWS[:3] if selection else ROWS[2:]
        yield experiments.GetArtifactResponse(chunk="\n".join(rows).encode())

    def answers(request, context):
        rows = range(3 if request.split == evaluation.SPLIT_SELECTION else 2)
        answers = [answer(request.candidate, row) for row in rows]
        return experiments.ListAnswersResponse(answers=answers)

    service = servicer(
        ListCandidates=candidates,
        ListVotes=votes,
        ListAnswers=answers,
        WatchExperiment=watch,
        GetArtifact=artifact,
    )
    with Client(serve(service)) as made:
        yield made


def test_a_candidate_that_was_stopped_has_bounds_and_no_score(serve, servicer, experiment):
    stopped = candidate(1, None)
    stopped.state = experiments.CANDIDATE_STATE_STOPPED
    stopped.reward_lower, stopped.reward_upper = 0.25, 0.5
    found = [candidate(-1, 0.125), candidate(0, 0.75), stopped, candidate(2, 0.5)]
    service = servicer(
        ListCandidates=lambda *_: experiments.ListCandidatesResponse(candidates=found),
        ListVotes=lambda *_: experiments.ListVotesResponse(votes=[experiments.Vote(skipped=1)]),
        WatchExperiment=lambda *_: iter(()),
        GetArtifact=lambda *_: iter((experiments.GetArtifactResponse(chunk=ROWS[0].encode()),)),
    )
    with Client(serve(service)) as client:
        run = fetch_run(client, experiment)
    assert [each.state for each in run.candidates] == ["scored", "stopped", "scored"]
    assert run.rewards == [0.75, None, 0.5]
    assert run.stopped == {1: Interval(0.25, 0.5)}
    assert run.ranks == {0: 1}
    assert run.votes[4, 2][0].skipped == 1


def test_a_run_holds_all_that_its_files_need(client, experiment, spec, tmp_path):
    run = fetch_run(client, experiment)
    assert run.spec == spec.model_dump(mode="json")
    assert run.provenance["scorer"] == ""
    assert run.overlap == 1
    assert [each.seed for each in run.candidates] == [100, 101, 102, 103]
    assert run.rewards == [0.5, 0.25, 0.75, None]
    assert run.order == (2, 0, 1)
    assert run.base.heldout_metric == 0.0
    assert [vote.answer for vote in run.votes[4, 2]] == ["24", None]
    write_run(tmp_path, run)
    assert (tmp_path / "report.html").exists()


def test_the_rows_are_recorded_with_the_commit_that_was_read(client, experiment):
    heldout = experiment.spec.task.heldout
    heldout.source, heldout.split, heldout.offset = "openai/gsm8k", "test", 3
    data = fetch_run(client, experiment).data
    assert asdict(data["selection"]) == {
        "source": "bundled:countdown-selection",
        "config": None,
        "split": None,
        "revision": None,
        "offset": 0,
        "rows": 8,
        "digest": "s",
    }
    assert (data["heldout"].split, data["heldout"].offset) == ("test", 3)
    assert data["heldout"].revision == "c"
    experiment.provenance.heldout_revision = ""
    heldout.revision = "main"
    assert fetch_run(client, experiment).data["heldout"].revision == "main"


def test_environments_reach_the_files(client, experiment, tmp_path):
    run = fetch_run(client, experiment)
    assert run.base.environment == {"torch": "2.11", "device": "cpu"}
    assert run.base.heldout_environment == {"torch": "2.13", "device": "cpu"}
    document = write_run(tmp_path, run)
    assert document["mixed_environments"] == {"torch": ["2.11", "2.13"]}
    timings = json.loads((tmp_path / "timings.json").read_text())
    assert [each["torch"] for each in timings["environments"]] == ["2.11", "2.13"]
    assert timings["base"] == {"environment": 0, "heldout_environment": 1}
    places = [(c["environment"], c["heldout_environment"]) for c in timings["candidates"]]
    assert places == [(0, None), (0, None), (1, 1), (None, None)]


def test_a_mixed_run_is_remarked_on(client, experiment, tmp_path, capsys):
    write_results(client, experiment, RunDirectory(tmp_path))
    out, err = capsys.readouterr()
    assert "torch 2.11, 2.13" in err
    assert not out


def test_results_are_there_only_once_the_lineage_is(client, experiment, tmp_path):
    experiment.states.add(updates=1, lineage_digest="d", reported=True)
    with pytest.raises(UnavailableError):
        write_results(client, experiment, RunDirectory(tmp_path))
    assert not (tmp_path / "results.json").exists()


def test_phases_are_timed_by_the_events(client, experiment):
    phases = fetch_run(client, experiment).timings["phases"]
    assert phases == {"selecting": 4.0, "voting": 1.0}


def test_the_start_of_an_engine_is_a_phase_of_its_own(experiment):
    selecting = experiments.EXPERIMENT_STATE_SELECTING
    events = [event(place, seconds, selecting) for place, seconds in enumerate((0, 1, 4, 9, 11))]
    for starting in events[1:3]:
        starting.progress.engine_stage = "compiling"
    assert timings(experiment, events)["phases"] == {"selecting": 3.0, "starting": 8.0}


@pytest.mark.parametrize(
    ("state", "remedy"), [("selecting", "watch"), ("cancelled", "again"), ("failed", "again")]
)
def test_an_unfinished_experiment_has_no_results(client, experiment, state, remedy):
    experiment.state = experiments.ExperimentState.Value(f"EXPERIMENT_STATE_{state.upper()}")
    with pytest.raises(PreconditionError, match=f"this one is {state} .*{remedy}"):
        fetch_run(client, experiment)


def test_a_saved_run_is_read_as_the_lab_tells_it(client, experiment, tmp_path):
    lab = LabRun(client, experiment)
    save_run(client, experiment, tmp_path)
    RunDirectory(tmp_path).claim(lab.spec)
    saved = SavedRun(tmp_path)
    assert (saved.spec, saved.provenance) == (lab.spec, lab.provenance)
    assert saved.ensembles == lab.ensembles
    for split in ("selection", "heldout", "development"):
        assert saved.rows(split) == lab.rows(split)
    assert list(saved.answers()) == list(lab.answers())
    assert list(saved.votes()) == list(lab.votes())
    assert list(saved.descriptors()) == list(lab.descriptors())
    for one, other in zip(saved.candidates, lab.candidates, strict=True):
        assert (one.index, one.seed, one.state) == (other.index, other.seed, other.state)
        assert (one.selection_reward, one.stopped) == (other.selection_reward, other.stopped)
        assert one.heldout_metric == other.heldout_metric
    assert (saved.scale_map(), saved.profile(), saved.lineage()) == (None, None, None)


def test_answers_carry_prompt_and_gold(client, experiment):
    answers = list(LabRun(client, experiment).answers())
    assert [(each.candidate, each.split) for each in answers[::3]][:3] == [
        (-1, "selection"),
        (-1, "heldout"),
        (0, "selection"),
    ]
    assert answers[0].completion == "-1 says 24"
    assert "Using the numbers [1, 2], create an equation that equals 24" in str(answers[0].prompt)
    assert {each.gold for each in answers} == {"24"}
    assert len(answers) == 4 * 3 + 3 * 2


def test_votes_carry_what_each_expert_said(client, experiment):
    (vote,) = LabRun(client, experiment).votes(VoteFilter(row=0))
    assert (vote.experts, vote.votes, vote.expert_correct) == ((2, 0), ("24",) * 2, (True,) * 2)
    assert vote.counts == (AnswerCount("24", 2, 2),)
    assert list(LabRun(client, experiment).votes(VoteFilter(ensemble_size=1))) == []


def test_without_the_task_prompts_and_gold_answers_are_left_out(client, experiment):
    experiment.spec.task.name = "of-another-package"
    answers = list(LabRun(client, experiment).answers(AnswerFilter(candidate=2, split="heldout")))
    assert [(each.prompt, each.gold, each.vote) for each in answers] == [(None, None, "24")] * 2


def test_a_task_that_is_not_installed_is_remarked_on(client, experiment, tmp_path, capsys):
    experiment.spec.task.name = "of-another-package"
    write_results(client, experiment, RunDirectory(tmp_path))
    assert "the task of-another-package is not installed here" in capsys.readouterr().err
