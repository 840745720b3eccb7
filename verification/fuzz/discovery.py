"""The rpcs of a lab, listed by reflection."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from google.protobuf.descriptor import MethodDescriptor
from google.protobuf.descriptor_pool import DescriptorPool
from grpc_reflection.v1alpha.proto_reflection_descriptor_database import (
    ProtoReflectionDescriptorDatabase,
)

from modnorm.wire.channel import Credentials, open_channel


@dataclass(frozen=True)
class Rpc:
    """A method of a service, and the process of the lab that serves it."""

    home: str
    method: MethodDescriptor

    @property
    def path(self) -> str:
        """Full name of the method in calls."""
        return f"/{self.method.containing_service.full_name}/{self.method.name}"

    @property
    def endless(self) -> bool:
        """Whether its response stream has no end."""
        return self.method.name.startswith("Watch")


def every_rpc(targets: Mapping[str, str], shown: Credentials) -> Sequence[Rpc]:
    """Return all methods of all services, including health checks and reflection."""
    return [
        Rpc(home, method) for home, target in targets.items() for method in _methods(target, shown)
    ]


def _methods(target: str, shown: Credentials) -> Iterator[MethodDescriptor]:
    with open_channel(target, shown, ()) as channel:
        database = ProtoReflectionDescriptorDatabase(channel)
        pool = DescriptorPool(database)
        for name in sorted(database.get_services()):
            yield from pool.FindServiceByName(name).methods
