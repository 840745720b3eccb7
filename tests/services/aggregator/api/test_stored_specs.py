"""A stored spec that a later rule forbids: its experiment, and all others, stay usable."""

import json

from modnorm.client.experiments import experiment_from_message
from modnorm.services.aggregator.storage.tables import Experiment
from modnorm.spec import parse_spec
from modnorm.v1 import experiment_pb2
from modnorm.wire.conversions import spec_from_proto
from tests.faults import error_at
from verification.labs.waiting import HANG_SECONDS

SELECTING = experiment_pb2.EXPERIMENT_STATE_SELECTING
FORBIDDEN = {"name": "vllm", "numerics": "batch_invariant", "drafts": "population"}


async def test_a_spec_that_a_new_rule_forbids_is_still_listed_shown_and_reused(
    start_lab, spec, database_url
):
    async with start_lab(database_url) as lab:
        old, other = await lab.create(spec(), "old"), await lab.create(spec(), "other")
        await lab.reach(old.id, SELECTING)
        await lab.cancel(old.id)
        with lab.aggregator._database.write() as session:
            stored = session.get_one(Experiment, old.id)
            content = {**json.loads(stored.spec_json), "engine": FORBIDDEN}
            stored.spec_json = json.dumps(content)
        with error_at("engine.drafts", "needs `numerics: fast`"):
            parse_spec(content)
        request = experiment_pb2.ListExperimentsRequest()
        found = await lab.experiments.ListExperiments(request, timeout=HANG_SECONDS)
        assert {each.id for each in found.experiments} == {old.id, other.id}
        shown = await lab.get(old.id)
        assert shown.spec.engine.drafts == "population"
        assert experiment_from_message(shown).spec.engine.drafts == "population"
        with error_at("engine.drafts", "needs `numerics: fast`"):
            spec_from_proto(shown.spec)
        again = await lab.create(spec(population__seed=6), "again")
        await lab.reach(again.id, SELECTING)
