"""A first experiment in a running lab, over gRPC: `python examples/lab.py HOST:PORT`."""

import sys
from pathlib import Path

from modnorm.client import LabCalls
from modnorm.client.export import save_run
from modnorm.spec import load_spec

SPEC = Path(__file__).with_name("demo-modular-norm.yaml")


def main(target: str) -> None:
    """Submit the demo, follow it, show one ensemble and write its report."""
    with LabCalls(target) as client:
        # The request id makes this repeatable: a second start returns the same experiment.
        experiment = client.submit(load_spec(SPEC), request_id="my-first-experiment")
        for event in client.watch(experiment.id):
            progress = event.progress
            sys.stdout.write(f"{event.message} {progress.jobs_done}/{progress.jobs_total}\n")
        experiment = client.get(experiment.id)
        for ensemble in experiment.ensembles:
            sys.stdout.write(
                f"N={ensemble.population} K={ensemble.ensemble_size}: {ensemble.metric:.1%}\n"
            )
        save_run(client, experiment, Path("runs/lab"))


if __name__ == "__main__":
    main(*sys.argv[1:])
