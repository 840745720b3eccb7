"""The trainer as a process: `python -m modnorm.services.trainer.server`."""

from prometheus_client import CollectorRegistry

from modnorm.services.common.service_process import read_settings, run_service
from modnorm.services.common.settings import TrainerSettings
from modnorm.services.common.worker.worker_service import WorkerService
from modnorm.services.trainer.worker import Worker
from modnorm.training.job import require_packages


def build(settings: TrainerSettings, registry: CollectorRegistry | None = None) -> WorkerService:
    """Return the service, not yet started, with its metrics in a registry.

    Raises:
        PreconditionError: the extra `modnorm[train]` is not installed.
    """
    require_packages()
    registry = registry or CollectorRegistry()
    return WorkerService(settings, Worker(settings, registry=registry), registry)


def main() -> None:
    """Run the trainer until a signal."""
    settings = read_settings(TrainerSettings)
    run_service(settings, lambda registry: build(settings, registry))


if __name__ == "__main__":
    main()
