"""The states of iterative runs, as they are listed and fetched."""

import threading
import time
from contextlib import contextmanager

from sqlalchemy import Engine, event

from modnorm.errors import NotFoundError
from modnorm.perturbation.lineage import Lineage
from modnorm.services.aggregator.api.to_proto import experiment_message
from modnorm.services.aggregator.experiments.experiment_store import ExperimentStore
from modnorm.services.aggregator.experiments.removal import remove_ended
from modnorm.v1 import evaluation_pb2


@contextmanager
def statements():
    """Record the statements of this thread inside the context."""
    made, thread = [], threading.get_ident()

    def note(_connection, _cursor, statement, *_):
        if threading.get_ident() == thread:
            made.append(statement)

    event.listen(Engine, "before_cursor_execute", note)
    try:
        yield made
    finally:
        event.remove(Engine, "before_cursor_execute", note)


async def test_reading_a_long_run_costs_as_much_as_a_short_one(start_lab, iterative_spec, worked):
    """The past is read once, and listed states come in one query."""

    async def statements_of(updates):
        settings = {"iterative__updates": updates, "iterative__evaluate_every": 1}
        message = iterative_spec("mezo", **settings)
        async with start_lab() as lab:
            created = await lab.create(message, f"{updates} updates")
            async with worked(lab):
                await lab.finish(created.id)
            first = await lab.get(created.id)
            store = lab.aggregator._stores.experiments
            with statements() as made:
                store.get(created.id)
            assert await lab.get(created.id) == first
            anew = ExperimentStore(store._database).get(created.id)
            assert experiment_message(anew) == first
            assert len(first.states) == updates + 1
            return made

    short, long = await statements_of(3), await statements_of(9)
    assert len(long) == len(short) <= 12


async def test_states_are_identified_by_their_digests(start_lab, iterative_spec, worked):
    async with start_lab() as lab:
        created = await lab.create(iterative_spec("es"))
        async with worked(lab):
            await lab.finish(created.id)
        whole = await lab.lineage(created.id)
        request = evaluation_pb2.FetchLineageRequest(
            experiment_id=created.id, digest=whole.digests[3], after=1
        )
        parts = [part async for part in lab.jobs.FetchLineage(request)]
        assert Lineage.from_json(parts[0].origin_json) == whole.until(0)
        sent = [step for part in parts for step in part.steps_json]
        assert sent == [step.to_json() for step in whole.steps[1:3]]
        request.digest = "f" * 64
        async with lab.raises(NotFoundError, "digest"):
            await anext(aiter(lab.jobs.FetchLineage(request)))


async def test_a_run_that_was_removed_and_submitted_again_shows_its_own_states(
    start_lab, iterative_spec, worked
):
    async with start_lab() as lab, worked(lab):
        created = await lab.create(iterative_spec("es"))
        await lab.finish(created.id)
        await lab.get(created.id)
        with lab.aggregator._database.write() as session:
            assert remove_ended(session, created.id, time.time() + 1)
        assert await lab.create(iterative_spec("es", population__seed=6)) != created
        await lab.finish(created.id)
        last = (await lab.get(created.id)).states[-1]
        assert last.lineage_digest == (await lab.lineage(created.id)).digest
