"""Permissions of roles, over real channels."""

import json

import grpc
import pytest
from google.protobuf.message_factory import GetMessageClass
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc

from modnorm.cli import main
from modnorm.client.connection import get_run_file, list_run_files
from modnorm.errors import InvalidInputError, NotFoundError
from modnorm.services.common.access import ALLOWED, OPEN
from modnorm.services.common.healthcheck import check
from modnorm.v1 import (
    calibration_pb2,
    evaluation_pb2,
    experiment_pb2,
    sampling_pb2,
    sandbox_pb2,
    status_pb2,
)
from modnorm.wire.connection import Credentials
from modnorm.wire.tokens import Role
from verification.fuzz.fuzzer import Rpc, every_rpc
from verification.labs.waiting import HANG_SECONDS

HOMES = {
    experiment_pb2: "aggregator",
    evaluation_pb2: "aggregator",
    status_pb2: "aggregator",
    calibration_pb2: "calibrator",
    sampling_pb2: "sampler",
    sandbox_pb2: "sandbox",
}
RPCS = [
    Rpc(home, method)
    for module, home in HOMES.items()
    for service in module.DESCRIPTOR.services_by_name.values()
    for method in service.methods
]
PATHS = [rpc.path for rpc in RPCS]


def call(channel, rpc):
    """Call a method with an empty request and read all responses."""
    empty = GetMessageClass(rpc.method.input_type)().SerializeToString()
    for _ in channel.stream_stream(rpc.path)(iter([empty]), timeout=HANG_SECONDS):
        pass


def test_every_rpc_is_in_the_table(lab, tokens):
    found = {rpc.path: rpc.home for rpc in every_rpc(lab.targets, tokens["read"])}
    ours = {path: home for path, home in found.items() if path.startswith("/modnorm.")}
    assert ours == {rpc.path: rpc.home for rpc in RPCS}
    assert set(ALLOWED) == {path for path in found if not path.startswith(OPEN)}
    assert all(ALLOWED.values())


@pytest.mark.parametrize("rpc", RPCS, ids=PATHS)
@pytest.mark.parametrize("name", ["none", "forged", "expired"])
def test_without_a_valid_token_no_call_is_answered(rpc, name, channel, refused):
    with refused(grpc.StatusCode.UNAUTHENTICATED):
        call(channel(name, rpc.home), rpc)


@pytest.mark.parametrize("rpc", RPCS, ids=PATHS)
def test_each_role_may_make_the_calls_in_the_table(rpc, channel, refused):
    for role in Role:
        if role in ALLOWED[rpc.path]:
            assert code_of(channel(role.value, rpc.home), rpc) not in {
                grpc.StatusCode.UNAUTHENTICATED,
                grpc.StatusCode.PERMISSION_DENIED,
                grpc.StatusCode.INTERNAL,
                grpc.StatusCode.UNKNOWN,
            }
        else:
            with refused(grpc.StatusCode.PERMISSION_DENIED):
                call(channel(role.value, rpc.home), rpc)


def code_of(channel, rpc):
    try:
        call(channel, rpc)
    except grpc.RpcError as error:
        return error.code()
    return grpc.StatusCode.OK


@pytest.mark.parametrize(
    "header",
    [
        [("authorization", "Bearer")],
        [("authorization", "Basic {token}")],
        [("authorization", "{token}")],
        [("authorization", "Bearer {token} {token}")],
        [("authorization", "Bearer {token}"), ("authorization", "Bearer {token}")],
        [("x-authorization", "Bearer {token}")],
    ],
)
def test_a_token_is_shown_in_one_way(header, channel, tokens, refused):
    text = tokens["read"].token.get_secret_value()
    metadata = [(key, value.format(token=text)) for key, value in header]
    listing = channel("none").unary_unary("/modnorm.v1.ExperimentService/ListExperiments")
    with refused(grpc.StatusCode.UNAUTHENTICATED):
        listing(b"", metadata=metadata, timeout=HANG_SECONDS)


def test_health_is_open_and_reflection_is_not(lab, channel, refused):
    assert all(
        check(target, credentials=Credentials()) in {"SERVING", "NOT_SERVING"}
        for target in lab.targets.values()
    )
    request = reflection_pb2.ServerReflectionRequest(list_services="")
    with refused(grpc.StatusCode.UNAUTHENTICATED):
        next(_reflect(channel("none"), request))
    listed = next(_reflect(channel("read"), request)).list_services_response.service
    assert "modnorm.v1.ExperimentService" in {service.name for service in listed}


def _reflect(channel, request):
    stub = reflection_pb2_grpc.ServerReflectionStub(channel)
    return stub.ServerReflectionInfo(iter([request]), timeout=HANG_SECONDS)


def test_a_token_that_may_only_submit_submits_quietly(
    lab, client, spec, tokens, tmp_path, monkeypatch, capsys
):
    file = tmp_path / "spec.json"
    file.write_text(json.dumps(spec().model_dump(mode="json", exclude_unset=True)))
    monkeypatch.setenv("MODNORM_TOKEN", tokens["submit"].token.get_secret_value())
    command = ["modnorm", "submit", str(file), "--server", lab.targets["aggregator"], "--quiet"]
    monkeypatch.setattr("sys.argv", command)
    with pytest.raises(SystemExit) as ended:
        main()
    assert not ended.value.code
    client("operate").cancel(capsys.readouterr().out.split()[0])


def test_tenants_do_not_see_each_other(lab, client, channel, spec, stored, refused, tokens):
    mine, theirs, operator = client("team-a"), client("team-b"), client("operate")
    made = mine.submit(spec(), "request")
    assert made.id in {one.id for one in mine.list()}
    assert made.id not in {one.id for one in theirs.list()}
    assert made.id in {one.id for one in operator.list()}
    assert mine.submit(spec(), "request").id == made.id
    other = theirs.submit(spec(method={"name": "randopt", "sigma": 0.02}), "request")
    assert other.id != made.id
    assert (made.request_id, other.request_id) == ("request", "request")
    mine.cancel(made.id)
    theirs.cancel(other.id)
    before = stored()
    reads = [
        lambda: theirs.get(made.id),
        lambda: next(iter(theirs.watch(made.id))),
        lambda: theirs.cancel(made.id),
        lambda: list_run_files(theirs, made.id),
        lambda: next(get_run_file(theirs, made.id, "results.json")),
        lambda: next(iter(theirs.predict(made.id, [{"question": "How many?"}]))),
    ]
    for read in reads:
        with pytest.raises(NotFoundError) as hidden:
            read()
        assert made.id in hidden.value.message
    page = experiment_pb2.ListExperimentsRequest(page_token=made.id)
    with pytest.raises(InvalidInputError, match="no experiment has this id"):
        theirs.call(theirs.stub.ListExperiments, page)
    with pytest.raises(NotFoundError) as absent:
        theirs.get("nobody")
    assert absent.value.message == "there is no experiment 'nobody'"
    assert operator.get(made.id).id == made.id
    assert stored() == before
