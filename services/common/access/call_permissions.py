"""Table of the roles that may make each call; all other calls are refused."""

from collections.abc import Iterator, Mapping
from collections.abc import Set as AbstractSet
from types import MappingProxyType

from modnorm.wire.tokens import Role

_SEE = {Role.READ, Role.OPERATE}
_WORK = {Role.WORKER}
_INSIDE = {Role.INTERNAL}
_RUN_PROGRAMS = {Role.WORKER, Role.INTERNAL}
_REFLECT = set(Role)

_SERVICES: Mapping[str, Mapping[str, AbstractSet[Role]]] = {
    "modnorm.v1.ExperimentService": {
        "CreateExperiment": {Role.SUBMIT},
        "CancelExperiment": {Role.SUBMIT, Role.OPERATE},
        "GetExperiment": _SEE,
        "ListExperiments": _SEE,
        "WatchExperiment": _SEE,
        "ListRunFiles": _SEE,
        "GetRunFile": _SEE,
    },
    "modnorm.v1.JobService": {
        "ClaimJob": _WORK,
        "Heartbeat": _WORK,
        "ReportJob": _WORK,
        "FailJob": _WORK,
        "FetchRows": _WORK,
        "GetScaleMap": _WORK,
        "FetchLineage": _WORK,
        "FetchGenerator": _WORK,
        "FetchAnswerSheet": _WORK,
    },
    "modnorm.v1.CalibrationService": {"Calibrate": _INSIDE, "GetProfile": _INSIDE},
    "modnorm.v1.SamplingService": {
        "InspectModel": _INSIDE,
        "BuildScaleMap": _INSIDE,
        "SampleDescriptors": _INSIDE,
    },
    "modnorm.v1.SandboxService": {"Execute": _RUN_PROGRAMS, "GetIsolation": _RUN_PROGRAMS},
    "modnorm.v1.StatusService": {"GetStatus": _SEE | _INSIDE},
    "grpc.reflection.v1alpha.ServerReflection": {"ServerReflectionInfo": _REFLECT},
}


def _methods() -> Iterator[tuple[str, frozenset[Role]]]:
    for service, methods in _SERVICES.items():
        for name, roles in methods.items():
            yield f"/{service}/{name}", frozenset(roles)


ALLOWED: Mapping[str, frozenset[Role]] = MappingProxyType(dict(_methods()))
"""Roles by full method name; one of them suffices."""

PAGE: frozenset[Role] = frozenset(_SEE)
"""Roles that may read the web page; one of them suffices."""

OPEN = "/grpc.health.v1.Health/"
"""Prefix of the methods without access control, which are health checks."""
