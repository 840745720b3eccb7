import json
import shutil

import pytest

from modnorm.checkpoint.reference import resolve_checkpoint
from modnorm.client.client import Client
from modnorm.client.resumption import (
    check_model_unchanged,
    resume_or_submit,
    resume_or_submit_shared,
)
from modnorm.errors import ConflictError
from modnorm.spec import FailureSpec, ModelSpec, PopulationSpec
from modnorm.v1 import experiment_pb2 as experiments
from modnorm.wire.conversions import spec_from_proto, spec_to_proto
from tests.faults import error_at

PENDING = experiments.EXPERIMENT_STATE_PENDING
SELECTING = experiments.EXPERIMENT_STATE_SELECTING
SUCCEEDED = experiments.EXPERIMENT_STATE_SUCCEEDED
FAILED = experiments.EXPERIMENT_STATE_FAILED
CANCELLED = experiments.EXPERIMENT_STATE_CANCELLED


@pytest.fixture
def patient(spec):
    """The spec, but for when to give up."""
    return spec.model_copy(update={"failures": FailureSpec(max_failed_candidates=3)})


class Lab:
    """Keeps experiments by request id, as an aggregator does."""

    def __init__(self):
        self.stored = {}

    def add(self, request_id, spec, state):
        self.stored[request_id] = experiments.Experiment(
            id=f"id of {request_id}", request_id=request_id, spec=spec_to_proto(spec), state=state
        )

    def create(self, request, context):
        if request.request_id not in self.stored:
            self.add(request.request_id, spec_from_proto(request.spec), PENDING)
        found = self.stored[request.request_id]
        return experiments.CreateExperimentResponse(experiment=found)

    def cancel(self, request, context):
        (found,) = [one for one in self.stored.values() if one.id == request.id]
        found.state = CANCELLED
        return experiments.CancelExperimentResponse(experiment=found)

    def list(self, request, context):
        return experiments.ListExperimentsResponse(experiments=self.stored.values())


@pytest.fixture
def lab():
    return Lab()


@pytest.fixture
def client(lab, serve, servicer):
    service = servicer(
        CreateExperiment=lab.create, CancelExperiment=lab.cancel, ListExperiments=lab.list
    )
    with Client(serve(service)) as made:
        yield made


@pytest.mark.parametrize("state", [SELECTING, SUCCEEDED])
def test_what_goes_on_or_succeeded_is_the_same_experiment(client, lab, spec, state):
    first = resume_or_submit(client, spec)
    assert first.request_id == spec.digest
    lab.stored[spec.digest].state = state
    assert resume_or_submit(client, spec).id == first.id
    assert len(lab.stored) == 1


def test_each_bad_end_is_followed_by_one_more_experiment(client, lab, spec):
    for state in (FAILED, CANCELLED, FAILED):
        lab.stored[resume_or_submit(client, spec).request_id].state = state
    last = resume_or_submit(client, spec)
    assert list(lab.stored) == [spec.digest, *(f"{spec.digest}/{n}" for n in (2, 3, 4))]
    assert resume_or_submit(client, spec) == last


def test_what_was_to_give_up_elsewhere_makes_way(client, lab, spec, patient):
    resume_or_submit(client, spec)
    other = spec.model_copy(update={"population": PopulationSpec(size=4, seed=1)})
    lab.add("other work", other, SELECTING)
    assert resume_or_submit(client, patient).request_id == patient.digest
    assert lab.stored[spec.digest].state == CANCELLED
    assert lab.stored["other work"].state == SELECTING


def test_what_is_still_wanted_does_not_make_way(client, lab, spec):
    first = resume_or_submit(client, spec)
    grown = spec.model_copy(update={"population": PopulationSpec(size=9)})
    resume_or_submit(client, grown, wanted=[first.id])
    assert lab.stored[spec.digest].state == PENDING
    resume_or_submit(client, grown)
    assert lab.stored[spec.digest].state == CANCELLED
    assert lab.stored[grown.digest].state == PENDING


def test_what_succeeded_is_not_cancelled(client, lab, spec, patient):
    lab.add(spec.digest, spec, SUCCEEDED)
    resume_or_submit(client, patient)
    assert lab.stored[spec.digest].state == SUCCEEDED


def test_in_a_shared_lab_the_same_spec_is_the_same_experiment(client, lab, spec, patient):
    first = resume_or_submit_shared(client, spec, "tune")
    assert first.request_id == f"tune/{spec.digest}"
    assert resume_or_submit_shared(client, spec, "tune").id == first.id
    assert resume_or_submit_shared(client, patient, "tune").id != first.id
    assert [one.state for one in lab.stored.values()] == [PENDING, PENDING]


@pytest.mark.parametrize("state", [FAILED, CANCELLED])
def test_in_a_shared_lab_another_experiment_follows_one_that_ended_early(client, lab, spec, state):
    for attempt in ("", "/2"):
        lab.add(f"tune/{spec.digest}{attempt}", spec, state)
    assert resume_or_submit_shared(client, spec, "tune").request_id == f"tune/{spec.digest}/3"


def test_a_model_that_was_edited_is_refused(spec, tmp_path):
    shutil.copytree(resolve_checkpoint("tiny-thicket").directory, tmp_path / "model")
    local = spec.model_copy(update={"model": ModelSpec(name=str(tmp_path / "model"))})
    started = experiments.Provenance(model_digest=resolve_checkpoint(local.model.name).digest)
    check_model_unchanged(local, started)
    config = tmp_path / "model" / "config.json"
    config.write_text(json.dumps({**json.loads(config.read_text()), "rms_norm_eps": 0.5}))
    with error_at("model", "--out", kind=ConflictError):
        check_model_unchanged(local, started)
    on_the_hub = spec.model_copy(update={"model": ModelSpec(name="somebody/small")})
    check_model_unchanged(on_the_hub, started)
