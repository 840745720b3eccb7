"""The states of iterative runs, as they are listed and fetched."""

from modnorm.errors import NotFoundError
from modnorm.perturbation.lineage import Lineage
from modnorm.v1 import evaluation_pb2


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
