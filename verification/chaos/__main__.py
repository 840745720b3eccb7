"""`python -m verification.chaos`: seeded random faults against a lab of real processes.

Each schedule runs a small search while workers, services, Postgres, Redis, the network, the clock
and the disk fail. Its results must equal those of an undisturbed
run. At the end a planted bug must be detected.
"""

import argparse
import json
import secrets
import signal
import sys
from collections.abc import Sequence
from pathlib import Path

from verification.chaos.campaign import Campaign, find_planted_bug
from verification.chaos.lab import inherited, working_folder
from verification.chaos.schedules import Fault, draw
from verification.labs.forked import running_fork_server


def main(arguments: Sequence[str] | None = None) -> int:
    """Run schedules; return 1 if one failed, a fault had no effect, or the bug was not found."""
    options = _parser().parse_args(arguments)
    seed = secrets.randbelow(10**6) if options.seed is None else options.seed
    faults = tuple(map(Fault, options.faults.split(",") if options.faults else Fault))
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    with working_folder(options.logs) as folder, running_fork_server(inherited()) as forks:
        campaign = Campaign(forks, folder)
        try:
            campaign.run(draw(each, faults) for each in range(seed, seed + options.schedules))
        finally:
            print(json.dumps(campaign.summary(), indent=2), flush=True)
        detected = find_planted_bug(forks, folder / "planted") if options.planted else True
    return 0 if detected and not campaign.failed and not campaign.idle else 1


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m verification.chaos", description=(__doc__ or "").split("\n\n")[1]
    )
    parser.add_argument("--schedules", type=int, default=20, help="number of schedules (20)")
    parser.add_argument(
        "--seed", type=int, help="seed of the first schedule; each next one adds 1"
    )
    parser.add_argument(
        "--faults", default="", help=f"use only these faults, of {', '.join(Fault)}"
    )
    parser.add_argument("--logs", type=Path, help="folder for the logs of the services")
    parser.add_argument(
        "--no-planted", dest="planted", action="store_false", help="skip the planted bug"
    )
    return parser


if __name__ == "__main__":
    sys.exit(main())
