"""Submit the demo to a lab and follow it: `python examples/submit_and_watch.py HOST:PORT`."""

import sys
from pathlib import Path

from modnorm import Client

SPEC = Path(__file__).with_name("demo-modular-norm.yaml")


def main(target: str, spec: str = str(SPEC), out: str = "runs/lab") -> None:
    """Submit a spec, print each event and write the finished run to a directory."""
    with Client(target) as client:
        # The request id makes this repeatable: a second start returns the same experiment.
        experiment = client.submit(spec, request_id="my-first-experiment")
        for event in client.watch(experiment.id):
            print(event.state, event.message, event.progress.jobs_done)
        print(client.download(experiment.id, out).to_pandas())


if __name__ == "__main__":
    main(*sys.argv[1:])
