"""PredictionService over real gRPC: streams, refusals, clients that leave, restarts."""

import asyncio
import json
from contextlib import AsyncExitStack
from typing import Any

import grpc.aio
import pytest

from modnorm.errors import (
    InvalidInputError,
    ModnormError,
    NotFoundError,
    PreconditionError,
    TooLargeError,
)
from modnorm.prediction.ranked_votes import Prediction, RankedVotes
from modnorm.services.aggregator.api.prediction_servicer import MAX_QUESTIONS, MAX_REQUEST_BYTES
from modnorm.v1 import experiment_pb2, prediction_pb2
from modnorm.wire.prediction_conversions import prediction_from_proto
from tests.services.aggregator.conftest import answers_of, running
from verification.labs.waiting import HANG_SECONDS

SUCCEEDED = experiment_pb2.EXPERIMENT_STATE_SUCCEEDED
Faults = tuple[tuple[dict[str, Any], type[ModnormError], str], ...]
QUESTIONS = [json.dumps({"question": f"What is {number} + 1?"}) for number in range(6)]


async def finished(lab, spec):
    created = await lab.create(spec())
    async with lab.working(lab.worker()):
        await lab.finish(created.id)
    return await lab.get(created.id)


def request_of(experiment, **changes):
    content = {"experiment_id": experiment.id, "questions": QUESTIONS, **changes}
    return prediction_pb2.PredictRequest(**content)


def call(lab, request):
    return lab.predictions.Predict(request, timeout=HANG_SECONDS)


async def predictions_of(stream):
    return [one.prediction async for one in stream if one.HasField("prediction")]


async def expected(lab, experiment):
    """What the largest ensemble predicts if its experts answer one after another."""
    descriptors = {one.index: one.descriptor for one in await lab.candidates(experiment.id)}
    experts = experiment.ensembles[-1].experts
    votes = RankedVotes(experts, len(QUESTIONS))
    predictions: list[Prediction] = []
    for expert in experts:
        answers = answers_of(descriptors[expert], list(map(json.loads, QUESTIONS)))
        message = prediction_pb2.Prediction(
            experts=[
                prediction_pb2.ExpertAnswer(
                    expert=expert,
                    vote=each.vote if each.HasField("vote") else None,
                    completion=each.completion,
                    tokens=each.tokens,
                )
                for each in answers
            ]
        )
        predictions += votes.add(dict(enumerate(prediction_from_proto(message).experts)))
    return predictions


async def test_evaluators_answer_and_the_experiment_stays_as_it_is(start_lab, spec, database_url):
    async with start_lab(database_url) as lab:
        experiment = await finished(lab, spec)
        events = await lab.finish(experiment.id)
        async with lab.working(lab.worker(), lab.worker(name="other")):
            responses = [one async for one in call(lab, request_of(experiment))]
        wanted = await expected(lab, experiment)
        told = [one.prediction for one in responses if one.HasField("prediction")]
        assert list(map(prediction_from_proto, told)) == wanted
        progress = [one.progress for one in responses if one.HasField("progress")]
        assert responses[0].HasField("progress")
        assert {one.answers_total for one in progress} == {18}
        assert progress[-1].answers_done == 18
        # Without workers: the answers are stored, and the client has received two.
        again = await predictions_of(call(lab, request_of(experiment, after=2)))
        assert list(map(prediction_from_proto, again)) == wanted[2:]
        assert await lab.get(experiment.id) == experiment
        assert await lab.finish(experiment.id) == events
        assert [one.id for one in (await lab.list()).experiments] == [experiment.id]
        value = lab.aggregator._registry.get_sample_value
        ended = {"state": "SUCCEEDED"}
        assert value("modnorm_prediction_seconds_count", ended) == 1
        assert value("modnorm_experiment_seconds_count", ended) == 1
        assert value("modnorm_candidates_scored_total", {"split": "questions"}) == 3


async def test_a_prediction_without_its_client_is_paused_and_resumed(start_lab, spec):
    async with start_lab() as lab:
        experiment = await finished(lab, spec)
        made = call(lab, request_of(experiment))
        stream = aiter(made)
        assert (await anext(stream)).progress.answers_done == 0
        worker = lab.worker()
        first, second = await worker.claim_next(), await worker.claim_next()
        await worker.report(first)
        while (await anext(stream)).progress.answers_done != 6:
            pass
        made.cancel()
        async with asyncio.timeout(HANG_SECONDS):
            while not (await lab.heartbeat(second.lease)).cancel:  # noqa: ASYNC110 - remote
                await asyncio.sleep(0.05)
        async with lab.working(lab.worker(name="other")):
            told = await predictions_of(call(lab, request_of(experiment)))
        assert list(map(prediction_from_proto, told)) == await expected(lab, experiment)


async def test_one_of_two_clients_may_leave(start_lab, spec):
    async with start_lab() as lab:
        experiment = await finished(lab, spec)
        calls = [call(lab, request_of(experiment)) for _ in range(2)]
        streams = [aiter(one) for one in calls]
        for stream in streams:
            await anext(stream)
        job = await lab.worker().claim_next()
        calls[0].cancel()
        await asyncio.sleep(0.5)
        assert not (await lab.heartbeat(job.lease)).cancel
        await lab.worker().report(job)
        async with lab.working(lab.worker()):
            assert len(await predictions_of(streams[1])) == 6


async def test_a_prediction_survives_a_restart_of_the_aggregator(start_lab, spec):
    async with start_lab() as lab:
        experiment = await finished(lab, spec)
        wanted = await expected(lab, experiment)
        await lab.die()
        ending = AsyncExitStack()
        first = await ending.enter_async_context(running(lab.settings, lab.app))
        stream = aiter(call(first, request_of(experiment)))
        await anext(stream)
        job = await first.worker().claim_next()
        reading = asyncio.create_task(predictions_of(stream))
        await ending.aclose()
        with pytest.raises(grpc.aio.AioRpcError) as ended:
            await reading
        assert ended.value.code() == grpc.StatusCode.UNAVAILABLE
        async with running(lab.settings, lab.app) as other:
            assert not (await other.heartbeat(job.lease)).cancel
            await other.worker().report(job)
            async with other.working(other.worker()):
                told = await predictions_of(call(other, request_of(experiment)))
        assert list(map(prediction_from_proto, told)) == wanted


async def test_an_expert_that_fails_ends_the_stream(start_lab, spec):
    async with start_lab() as lab:
        experiment = await finished(lab, spec)
        stream = aiter(call(lab, request_of(experiment)))
        await anext(stream)
        job = await lab.worker().claim_next()
        await lab.fail(job.lease, "FATAL", "the prompt is too long")
        async with lab.raises(PreconditionError, "questions"):
            await predictions_of(stream)
        assert (await lab.get(experiment.id)).state == SUCCEEDED


async def test_bad_requests_are_refused(start_lab, spec):
    async with start_lab() as lab:
        experiment = await finished(lab, spec)
        faults: Faults = (
            ({"questions": []}, InvalidInputError, "questions"),
            (
                {"questions": ["{}"] * (MAX_QUESTIONS + 1)},
                InvalidInputError,
                "questions",
            ),
            ({"questions": ["x" * MAX_REQUEST_BYTES]}, TooLargeError, "questions"),
            ({"questions": ["[" * 100_000]}, InvalidInputError, "questions"),
            ({"questions": ['{"question": NaN}']}, InvalidInputError, "questions"),
            ({"questions": ["7"]}, InvalidInputError, "questions"),
            ({"questions": ['{"answer": "7"}']}, InvalidInputError, "questions"),
            ({"after": -1}, InvalidInputError, "after"),
            ({"experiment_id": "nothing"}, NotFoundError, "id"),
            ({"population": 5}, NotFoundError, "n"),
            ({"ensemble_size": 2}, NotFoundError, "k"),
        )
        for changes, kind, field in faults:
            async with lab.raises(kind, field):
                await predictions_of(call(lab, request_of(experiment, **changes)))
        live = await lab.create(spec(), request_id="live")
        async with lab.raises(PreconditionError, "experiment_id"):
            await predictions_of(call(lab, request_of(live)))
