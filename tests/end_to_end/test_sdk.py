"""Both clients on a real lab: what they tell agrees with the directory of an undisturbed run."""

import pytest

from modnorm import load_run
from modnorm.client.embedded import find_embedded
from modnorm.client.experiments import ExperimentState
from modnorm.errors import NotFoundError, UnauthenticatedError
from modnorm.wire.channel import Credentials


@pytest.fixture(scope="module")
def lab(tmp_path_factory, cache_dir):
    with find_embedded()(tmp_path_factory.mktemp("sdk") / "state", cache=cache_dir) as running:
        yield running


@pytest.fixture
def client(connect, lab):
    return connect(lab.target, credentials=lab.credentials)


def test_a_spec_is_carried_to_its_results(client, write_spec, finished, tmp_path):
    submitted = client.submit(write_spec("small"), "one for both clients")
    events = list(client.watch(submitted.id))
    assert events[-1].state is ExperimentState.SUCCEEDED
    ended = client.get(submitted.id)
    assert (ended.spec, ended.state) == (submitted.spec, ExperimentState.SUCCEEDED)
    assert submitted.id in {one.id for one in client.list()}
    expected = load_run(finished)
    run = client.run(submitted.id)
    assert list(run.answers(candidate=0)) == list(expected.answers(candidate=0))
    assert list(run.votes()) == list(expected.votes())
    saved = client.download(submitted.id, tmp_path / "run")
    assert saved.to_pandas().equals(expected.to_pandas())


def test_a_cancelled_experiment_says_so(client, write_spec):
    submitted = client.submit(write_spec("cancelled", population={"size": 64}))
    client.cancel(submitted.id)
    assert list(client.watch(submitted.id))[-1].state is ExperimentState.CANCELLED


def test_refusals_of_a_lab_are_errors_of_the_tree(client, connect, lab):
    with pytest.raises(NotFoundError) as raised:
        client.get("00000000-0000-0000-0000-000000000000")
    assert raised.value.field == "id"
    with pytest.raises(UnauthenticatedError):
        connect(lab.target, credentials=Credentials()).get("e1")
