"""A user's program: it may hold no expression without a type, which mypy checks."""

# mypy: disallow-any-expr, disallow-any-explicit

import asyncio
from typing import assert_type

from modnorm import AsyncClient, Client, Ensemble, Run
from modnorm.analysis.answers import AnswerRecord
from modnorm.analysis.listing import AsyncListing, Listing
from modnorm.analysis.run_data import CandidateRow
from modnorm.analysis.votes import VoteRecord
from modnorm.client.async_run import AsyncRun
from modnorm.client.experiments import Event, Experiment, ExperimentState, ExperimentSummary


def described(target: str) -> list[str]:
    """Read a run as a script does."""
    with Client(target) as client:
        experiment = assert_type(client.get("e1"), Experiment)
        assert_type(experiment.state, ExperimentState)
        assert_type(client.list(), Listing[ExperimentSummary])
        states = [assert_type(event, Event).state for event in client.watch("e1")]
        run = assert_type(client.run("e1"), Run)
        assert_type(run.candidates, Listing[CandidateRow])
        ensemble = assert_type(run.ensembles[-1], Ensemble)
        vote = assert_type(ensemble.vote(1), VoteRecord)
        answers = [assert_type(each, AnswerRecord).completion for each in run.answers(0)]
        table = run.to_pandas()
    return [*states, *answers, str(vote.answer), str(len(table))]


async def described_in_a_loop(target: str) -> list[str]:
    """Read a run as a coroutine does."""
    async with AsyncClient(target) as client:
        assert_type(await client.get("e1"), Experiment)
        assert_type(client.list(), AsyncListing[ExperimentSummary])
        states = [assert_type(event, Event).state async for event in client.watch("e1")]
        run = assert_type(await client.run("e1"), AsyncRun)
        answers = [assert_type(each, AnswerRecord).completion async for each in run.answers(0)]
        votes = [assert_type(each, VoteRecord).answer async for each in run.votes(1)]
        table = run.ensembles.to_pandas()
    return [*states, *answers, str(votes[-1]), str(len(table))]


def test_both_clients_tell_the_same_in_the_same_types(gsm8k_lab: str) -> None:
    said = described(gsm8k_lab)
    assert said == asyncio.run(described_in_a_loop(gsm8k_lab))
    assert said == ["succeeded", "so 1000.", "so 1000.", "so 1000.", "so 7", "7", "4"]
