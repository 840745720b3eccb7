"""Parts of an earlier distillation are used again only if they began with equal inputs."""

import hashlib

from modnorm.services.aggregator.experiments import reuse
from modnorm.services.aggregator.storage.states import Purpose
from modnorm.services.aggregator.storage.stored_artifacts import StoredText
from modnorm.services.aggregator.storage.tables import Experiment


def test_a_deleted_student_is_trained_again(lab):
    """Nothing removes students, so people do."""
    first = lab.create(rounds=1)
    lab.run(first, until=lambda: lab.is_trained(first))
    lab.world.stores.experiments.cancel(first)
    digest = lab.get(first).rounds[1].part.student_digest
    lab.world.students.require(digest).rmdir()
    second = lab.create("again", rounds=1)
    lab.run(second)
    assert lab.get(second).rounds[1].part.student_digest == digest
    assert lab.world.students.path(digest) is not None


def profile(text):
    return StoredText(hashlib.sha256(text.encode()).hexdigest(), text)


def test_another_profile_searches_and_harvests_anew(lab):
    """The file that a spec names may hold another profile than at the first submission."""
    first = lab.create(rounds=1, admitted={"needs_profile": True, "profile": profile("one")})
    lab.run(first, until=lambda: lab.is_trained(first))
    lab.world.stores.experiments.cancel(first)
    second = lab.create(
        "again", rounds=1, admitted={"needs_profile": True, "profile": profile("two")}
    )
    lab.run(second)
    before, after = (lab.get(one).rounds[1].part for one in (first, second))
    assert after.search_id != before.search_id
    assert after.harvest_id != before.harvest_id
    assert lab.get(second).rounds[0].part.evaluation_id == (
        lab.get(first).rounds[0].part.evaluation_id
    )


def test_a_harvest_is_used_again_with_its_own_search_only(lab):
    """Two distillations that ran at the same time may have found other experts."""
    first, second = lab.create(rounds=1), lab.create("beside", rounds=1)
    for one in (first, second):
        lab.run(one, until=lambda one=one: lab.children(one, Purpose.SEARCH))
        lab.world.now += 1
    lab.run(first, until=lambda: lab.children(first, Purpose.HARVEST))
    lab.world.stores.experiments.cancel(first)
    lab.run(second, until=lambda: lab.is_trained(second))
    lab.world.stores.experiments.cancel(second)
    third = lab.create("again", rounds=1)
    lab.run(third)
    part = lab.get(third).rounds[1].part
    (search,) = lab.children(first, Purpose.SEARCH)
    (other,) = lab.children(second, Purpose.HARVEST)
    assert part.search_id == search.id
    assert part.harvest_id != other.id


def test_other_prompts_of_equal_rows_are_answered_by_the_base_anew(lab):
    first = lab.create(rounds=1, admitted={"prompts_digest": "a" * 64})
    lab.run(first)
    second = lab.create("again", rounds=1, admitted={"prompts_digest": "b" * 64})
    lab.run(second)
    base, part = lab.get(second).rounds
    assert base.part.evaluation_id != lab.get(first).rounds[0].part.evaluation_id
    events, _ = lab.world.stores.events.after(part.part.search_id, 0, 1_000)
    assert any("the base has answered before" in event.message for event in events)
    used = reuse._evaluation  # the earliest equal evaluation, which must have equal prompts
    with lab.world.database.read() as session:
        search = session.get_one(Experiment, part.part.search_id)
        assert used(session, search) == base.part.evaluation_id
