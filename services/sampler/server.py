"""The sampler as a process: `python -m services.sampler.server`."""

from collections.abc import Sequence

import grpc.aio

from modnorm.v1 import sampling_pb2_grpc
from services.common.run import run_service
from services.common.server import GrpcService
from services.common.settings import SamplerSettings
from services.sampler.servicer import SERVICE, SamplingServicer


def build(settings: SamplerSettings) -> GrpcService:
    """Return the service, not started yet."""

    def register(server: grpc.aio.Server) -> Sequence[str]:
        servicer = SamplingServicer(settings)
        sampling_pb2_grpc.add_SamplingServiceServicer_to_server(servicer, server)
        return (SERVICE,)

    return GrpcService(settings, register)


def main() -> None:
    """Serve until told to stop."""
    settings = SamplerSettings()
    run_service(settings, lambda: build(settings))


if __name__ == "__main__":
    main()
