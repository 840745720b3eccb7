"""The calls of a lab, against the contract."""

import inspect

from google.protobuf.descriptor_pool import Default

from modnorm.client import calls
from modnorm.spec import ExperimentSpec
from modnorm.v1.experiment_pb2 import Questions

OF_WORKERS = {"UploadModelFile", "StoreModel"}
"""Methods that only workers and services call."""


def described(spec: ExperimentSpec) -> list[calls.Call[object]]:
    """Make every call of the module, with arguments by the names of its parameters."""
    known = {
        "spec": spec,
        "token": "",
        "experiment_id": "e1",
        "request_id": "mine",
        "digest": "d" * 64,
        "name": "config.json",
        "questions": Questions(of="e1"),
    }
    made = []
    for name, function in inspect.getmembers(calls, inspect.isfunction):
        if function.__module__ != calls.__name__ or name.startswith("_"):
            continue
        wanted = inspect.signature(function).parameters
        made.append(function(**{each: known.get(each, 1) for each in wanted}))
    return made


def test_each_method_of_the_contract_is_called_with_its_message(spec: ExperimentSpec) -> None:
    made = described(spec)
    services = [Default().FindServiceByName(name) for name in {call.service for call in made}]
    methods = {
        f"/{service.full_name}/{method.name}": method.input_type
        for service in services
        for method in service.methods
        if method.name not in OF_WORKERS
    }
    assert {call.path: call.request.DESCRIPTOR for call in made} == methods


def test_an_empty_response_of_each_method_is_read(spec: ExperimentSpec) -> None:
    for call in described(spec):
        call.read(b"")
