"""`python -m verification.chaos`: seeded random faults against a lab of real processes.

Each schedule runs one small experiment while evaluators, services, Postgres, Redis, the network,
the clock and the disk fail. Afterwards its results must be those of an undisturbed run. Then a
bug is planted and has to be found.
"""

import argparse
import json
import secrets
import signal
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from verification.chaos.campaign import Campaign
from verification.chaos.lab import working_folder
from verification.chaos.planted import find_planted_bug
from verification.chaos.schedule import Fault


def main(arguments: Sequence[str] | None = None) -> int:
    """Play schedules; return 1 when one failed, a fault never hit, or no bug was found."""
    asked = _parser().parse_args(arguments)
    seed = secrets.randbelow(10**6) if asked.seed is None else asked.seed
    faults = [Fault(name) for name in asked.faults.split(",")] if asked.faults else list(Fault)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    with working_folder(asked.logs) as folder:
        campaign = Campaign(folder, faults)
        try:
            campaign.play(range(seed, seed + asked.schedules))
        finally:
            _show(campaign.summary(), asked.json)
        found = find_planted_bug(folder / "planted") if asked.planted else True
    return 0 if found and not campaign.failed and not campaign.idle else 1


def _show(summary: Mapping[str, object], file: Path | None) -> None:
    text = json.dumps(summary, indent=2)
    print(text, flush=True)
    if file is not None:
        file.write_text(f"{text}\n")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m verification.chaos", description=(__doc__ or "").split("\n\n")[1]
    )
    parser.add_argument("--schedules", type=int, default=20, help="how many (20)")
    parser.add_argument("--seed", type=int, help="of the first; each next has the next")
    parser.add_argument("--faults", default="", help=f"only these, of {', '.join(Fault)}")
    parser.add_argument("--logs", type=Path, help="keep what the services say here")
    parser.add_argument("--json", type=Path, help="write the summary to this file, too")
    parser.add_argument(
        "--no-planted", dest="planted", action="store_false", help="leave the planted bug out"
    )
    return parser


if __name__ == "__main__":
    sys.exit(main())
