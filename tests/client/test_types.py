"""A user's program: it may hold no expression without a type, which mypy checks."""

# mypy: disallow-any-expr, disallow-any-explicit

from typing import assert_type

from modnorm import Client, Ensemble, Run
from modnorm.analysis.answers import AnswerRecord
from modnorm.analysis.candidates import CandidateRecord
from modnorm.analysis.listing import Listing
from modnorm.analysis.votes import VoteRecord
from modnorm.client.experiments import Event, Experiment, ExperimentState, ExperimentSummary


def described(target: str) -> list[str]:
    """Read a run as a script does."""
    with Client(target) as client:
        experiment = assert_type(client.get("e1"), Experiment)
        assert_type(experiment.state, ExperimentState)
        assert_type(client.list(), Listing[ExperimentSummary])
        states = [assert_type(event, Event).state for event in client.watch("e1")]
        run = assert_type(client.run("e1"), Run)
        assert_type(run.candidates, Listing[CandidateRecord])
        ensemble = assert_type(run.ensembles[-1], Ensemble)
        vote = assert_type(ensemble.vote(1), VoteRecord)
        answers = [assert_type(each, AnswerRecord).completion for each in run.answers(0)]
        table = run.to_pandas()
    return [*states, *answers, str(vote.answer), str(len(table))]


def test_a_program_without_casts_has_types(gsm8k_lab: str) -> None:
    assert described(gsm8k_lab) == [
        "succeeded",
        "so 1000.",
        "so 1000.",
        "so 1000.",
        "so 7",
        "7",
        "4",
    ]
