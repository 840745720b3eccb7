"""Questions to a finished run over real gRPC."""

import json

from modnorm.prediction.ranked_votes import ExpertAnswer, Prediction, RankedVotes, prediction_line
from modnorm.v1 import experiment_pb2
from tests.services.aggregator.conftest import answers_of
from verification.labs.waiting import HANG_SECONDS

ROWS = [{"question": f"What is {number} + 1?"} for number in range(6)]


async def finished(lab, spec):
    created = await lab.create(spec())
    async with lab.working(lab.worker()):
        await lab.finish(created.id)
    return await lab.get(created.id)


async def ask(lab, request_id="asked", rows=ROWS, **fields):
    questions = experiment_pb2.Questions(rows=map(json.dumps, rows), **fields)
    request = experiment_pb2.CreateExperimentRequest(request_id=request_id, questions=questions)
    return (await lab.experiments.CreateExperiment(request, timeout=HANG_SECONDS)).experiment


async def expected(lab, run):
    """What the largest ensemble predicts if its experts answer one after another."""
    descriptors = {one.index: one.descriptor for one in await lab.candidates(run.id)}
    experts = run.ensembles[-1].experts
    votes = RankedVotes(experts, len(ROWS))
    found: list[Prediction] = []
    for expert in experts:
        answers = answers_of(descriptors[expert], ROWS)
        found += votes.add(
            {
                row: ExpertAnswer(expert, each.vote, each.completion, each.tokens, each.truncated)
                for row, each in enumerate(answers)
            }
        )
    return b"".join(map(prediction_line, sorted(found, key=lambda each: each.row)))


async def test_evaluators_answer_and_the_run_stays_as_it_is(start_lab, spec):
    async with start_lab() as lab:
        run = await finished(lab, spec)
        events = await lab.finish(run.id)
        asked = await ask(lab, of=run.id)
        assert await ask(lab, of=run.id) == asked
        async with lab.working(lab.worker(), lab.worker(name="other")):
            assert (await lab.finish(asked.id))[-1].progress.jobs_done == 3
        assert await lab.file(asked.id, "predictions.jsonl") == await expected(lab, run)
        assert await lab.get(run.id) == run
        assert await lab.finish(run.id) == events
        assert [one.id for one in (await lab.list()).experiments] == [asked.id, run.id]
