import threading

from services.evaluator.shutdown import Shutdown
from verification.labs.waiting import HANG_SECONDS

HOURS = 10_000.0


def test_the_grace_period_begins_with_the_first_request() -> None:
    shutdown = Shutdown(grace=HOURS)
    assert not shutdown.requested.is_set()
    shutdown.request()
    assert shutdown.requested.is_set()
    assert not shutdown.overdue


def test_a_hurry_ends_the_grace_period_and_whoever_sleeps_in_it() -> None:
    shutdown = Shutdown(grace=HOURS)
    shutdown.request()
    assert shutdown.overrun < 0
    sleeper = threading.Thread(target=shutdown.sleep, args=(HOURS,))
    sleeper.start()
    shutdown.hurry()
    sleeper.join(HANG_SECONDS)
    assert not sleeper.is_alive()
    assert shutdown.overdue


def test_a_hurry_without_a_request_asks_to_stop_too() -> None:
    shutdown = Shutdown(grace=HOURS)
    shutdown.hurry()
    shutdown.request()
    assert shutdown.requested.is_set()
    assert shutdown.overdue


def test_no_sleep_goes_past_the_grace_period() -> None:
    shutdown = Shutdown(grace=0.0)
    shutdown.request()
    shutdown.sleep(HOURS)
    assert shutdown.overdue
