"""Both clients on a real lab: what they tell agrees with the directory of an undisturbed run."""

import pytest

from modnorm import load_run
from modnorm.client.embedded import find_embedded
from modnorm.client.experiments import ExperimentState
from modnorm.errors import InvalidInputError, NotFoundError, UnauthenticatedError
from modnorm.wire.connection import Credentials


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
        (lambda run: run.answers(candidate=6), "candidate"),
        (lambda run: run.answers(candidate=-2), "candidate"),
        (lambda run: run.answers(candidate="0"), "candidate"),
        (lambda run: run.answers(candidate=True), "candidate"),
        (lambda run: run.answers(split="held"), "split"),
        (lambda run: run.answers(split="development"), "split"),
        (lambda run: run.answers(row=8), "row"),
        (lambda run: run.answers(row=-1, split="heldout"), "row"),
        (lambda run: run.votes(row=8), "row"),
        (lambda run: run.votes(row="0"), "row"),
        (lambda run: run.answers(wrong="no"), "wrong"),
    ],
)
def test_what_a_run_does_not_have_is_an_error(client, write_spec, finished, ask, field):
    submitted = client.submit(write_spec("small"), "one for both clients")
    assert list(client.watch(submitted.id))
    for run in (client.run(submitted.id), load_run(finished)):
        with pytest.raises((InvalidInputError, NotFoundError)) as raised:
            list(ask(run))
        assert raised.value.field == field
        assert raised.value.remedy


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


def test_what_a_run_has_may_be_empty(finished):
    run = load_run(finished)
    experts = {expert for ensemble in run.ensembles for expert in ensemble.experts}
    unasked = {each.index for each in run.candidates} - experts
    assert list(run.answers(candidate=min(unasked), split="heldout")) == []
    assert len(list(run.answers(candidate=-1, row=7))) == 2


@pytest.mark.parametrize("questions", [{"numbers": [1, 2], "target": 3}, ["what"], []])
def test_what_is_no_list_of_rows_is_refused(finished, questions):
    with pytest.raises(InvalidInputError) as raised:
        load_run(finished).ensemble(6, 2).predict(questions)
    assert raised.value.field == "input"
    assert raised.value.remedy


@pytest.mark.parametrize("target", [None, "", "http://lab:50051", "lab:0", "lab:70000"])
def test_a_target_that_is_no_address_is_refused(connect, target):
    with pytest.raises(InvalidInputError) as raised:
        connect(target, credentials=Credentials())
    assert raised.value.field == "server"
    assert "HOST:PORT" in str(raised.value)


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
