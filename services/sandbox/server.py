"""The sandbox service as a process: `python -m services.sandbox.server`."""

from services.common.service_process import read_settings, run_service
from services.common.settings import SandboxSettings
from services.sandbox.service import SandboxService


def main() -> None:
    """Serve until a signal stops the process."""
    settings = read_settings(SandboxSettings)
    run_service(settings, lambda registry: SandboxService(settings, registry))


if __name__ == "__main__":
    main()
