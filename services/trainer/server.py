"""The trainer as a process: `python -m services.trainer.server`."""

from prometheus_client import CollectorRegistry

from modnorm.training.job import require_packages
from services.common.service_process import read_settings, run_service
from services.common.settings import TrainerSettings
from services.common.worker.worker_service import WorkerService
from services.trainer.worker import Worker


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
