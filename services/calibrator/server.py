"""The calibrator as a process: `python -m modnorm.services.calibrator.server`."""

from collections.abc import Sequence

import grpc.aio
from prometheus_client import CollectorRegistry

from modnorm.services.calibrator.servicer import SERVICE, CalibrationServicer
from modnorm.services.common.server import GrpcService
from modnorm.services.common.service_process import read_settings, run_service
from modnorm.services.common.settings import CalibratorSettings
from modnorm.services.common.status_servicer import SERVICE as STATUS
from modnorm.services.common.status_servicer import StatusServicer
from modnorm.v1 import calibration_pb2_grpc, status_pb2_grpc


def build(settings: CalibratorSettings, registry: CollectorRegistry | None = None) -> GrpcService:
    """Return the service, not yet started, with its metrics in a registry."""
    servicer = CalibrationServicer(settings)

    def register(server: grpc.aio.Server) -> Sequence[str]:
        calibration_pb2_grpc.add_CalibrationServiceServicer_to_server(servicer, server)
        status_pb2_grpc.add_StatusServiceServicer_to_server(StatusServicer(), server)
        return SERVICE, STATUS

    return GrpcService(settings, register, registry, close=servicer.close)


def main() -> None:
    settings = read_settings(CalibratorSettings)
    run_service(settings, lambda registry: build(settings, registry))


if __name__ == "__main__":
    main()
