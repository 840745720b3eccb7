"""The sampler as a process: `python -m modnorm.services.sampler.server`."""

from collections.abc import Sequence

import grpc.aio
from prometheus_client import CollectorRegistry

from modnorm.services.common.server import GrpcService
from modnorm.services.common.service_process import read_settings, run_service
from modnorm.services.common.settings import SamplerSettings
from modnorm.services.common.status_servicer import SERVICE as STATUS
from modnorm.services.common.status_servicer import StatusServicer
from modnorm.services.sampler.servicer import SERVICE, SamplingServicer
from modnorm.v1 import sampling_pb2_grpc, status_pb2_grpc


def build(settings: SamplerSettings, registry: CollectorRegistry | None = None) -> GrpcService:
    """Return the service, not yet started, with its metrics in a registry."""
    servicer = SamplingServicer(settings)

    def register(server: grpc.aio.Server) -> Sequence[str]:
        sampling_pb2_grpc.add_SamplingServiceServicer_to_server(servicer, server)
        status_pb2_grpc.add_StatusServiceServicer_to_server(StatusServicer(), server)
        return SERVICE, STATUS

    return GrpcService(settings, register, registry, close=servicer.close)


def main() -> None:
    settings = read_settings(SamplerSettings)
    run_service(settings, lambda registry: build(settings, registry))


if __name__ == "__main__":
    main()
