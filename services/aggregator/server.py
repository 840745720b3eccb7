"""The aggregator as a process: `python -m services.aggregator.server`."""

from services.aggregator.aggregator import build_aggregator
from services.common.service_process import read_settings, run_service
from services.common.settings import AggregatorSettings


def main() -> None:
    """Run the aggregator until a signal."""
    settings = read_settings(AggregatorSettings)
    run_service(settings, lambda registry: build_aggregator(settings, registry=registry))


if __name__ == "__main__":
    main()
