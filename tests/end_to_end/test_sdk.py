"""Both clients on a real lab: what they tell agrees with the directory of an undisturbed run."""

import pytest

from modnorm import load_run
from modnorm.client.embedded import find_embedded
from modnorm.client.experiments import ExperimentState
from modnorm.errors import InvalidInputError, NotFoundError


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


@pytest.mark.parametrize(
    ("ask", "field"),
    [
        (lambda run: run.ensemble(6, 6), "ensemble_size"),
        (lambda run: run.ensemble(6, 2).vote(8), "row"),
        (lambda run: run.source.rows("foo"), "split"),
        (lambda run: run.source.descriptors(6), "candidate"),
    ],
)
def test_what_a_directory_does_not_hold_is_an_error(finished, ask, field):
    with pytest.raises((InvalidInputError, NotFoundError)) as raised:
        list(ask(load_run(finished)))
    assert raised.value.field == field
    assert raised.value.remedy


@pytest.mark.parametrize("questions", [{"numbers": [1, 2], "target": 3}, ["what"], []])
def test_what_is_no_list_of_rows_is_refused(finished, questions):
    with pytest.raises(InvalidInputError) as raised:
        load_run(finished).ensemble(6, 2).predict(questions)
    assert raised.value.field == "input"
    assert raised.value.remedy
