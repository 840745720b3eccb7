"""The sandbox as a process: `python -m services.sandbox.server`."""

from services.common.run import run_service
from services.common.settings import SandboxSettings
from services.common.starting import read_settings
from services.sandbox.service import SandboxService


def main() -> None:
    """Serve until told to stop."""
    settings = read_settings(SandboxSettings)
    run_service(settings, lambda registry: SandboxService(settings, registry))


if __name__ == "__main__":
    main()
