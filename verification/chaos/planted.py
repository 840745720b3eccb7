"""A planted bug that the suite must detect: fencing tokens that never grow.

A trigger in a lab's database keeps every token at 1, so that an old lease looks like the present
one, whatever the aggregator checks. The services are unchanged.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from verification.chaos.campaign import run_schedule, run_undisturbed
from verification.chaos.chaos_lab import Lab, open_lab
from verification.chaos.fault_schedule import EXPERIMENTS, Fault, Schedule, Step
from verification.labs.forked import ForkServer

_PLANT = """
CREATE FUNCTION keep_token() RETURNS trigger LANGUAGE plpgsql AS
$$ BEGIN NEW.token := LEAST(NEW.token, 1); RETURN NEW; END $$;
CREATE TRIGGER keep_token BEFORE UPDATE ON jobs FOR EACH ROW EXECUTE FUNCTION keep_token();
"""
_REMOVE = "DROP TRIGGER keep_token ON jobs; DROP FUNCTION keep_token"
TRIES = 3
"""Attempts: a late report detects nothing if the other worker was faster."""


@contextmanager
def fencing_removed(lab: Lab) -> Iterator[None]:
    """Plant the bug inside the context."""
    with lab.database.connect() as connection:
        connection.execute(_PLANT)
    try:
        yield
    finally:
        with lab.database.connect() as connection:
            connection.execute(_REMOVE)


def find_planted_bug(forks: ForkServer, folder: Path) -> bool:
    """Remove fencing from a lab and send late reports; return whether the bug is detected."""
    with open_lab(forks, folder, supervised=False) as lab:
        expected = run_undisturbed(lab, EXPERIMENTS[:1])
        for seed in range(TRIES):
            step = Step(Fault.LATE_REPORT, 1, 0.0, seed)
            with fencing_removed(lab):
                verdict = run_schedule(lab, Schedule(seed, EXPERIMENTS[0], (step,)), expected)
            if verdict.complaints:
                print(f"fencing removed: found ({'; '.join(verdict.complaints)[:300]})")
                return True
    print("fencing removed: NOT FOUND")
    return False
