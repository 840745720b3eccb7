"""Both clients on a real lab: what they tell agrees with the directory of an undisturbed run."""

import pytest

from modnorm import load_run
from modnorm.client.embedded import find_embedded
from modnorm.client.experiments import ExperimentState


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
