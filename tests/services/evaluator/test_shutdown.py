import threading

from modnorm.services.evaluator.shutdown import Shutdown
from verification.labs.waiting import HANG_SECONDS

HOURS = 10_000.0


def test_stop_now_ends_the_grace_period_and_its_sleeps() -> None:
    shutdown = Shutdown(grace=HOURS)
    shutdown.request()
    assert shutdown.overrun < 0
    sleeper = threading.Thread(target=shutdown.sleep, args=(HOURS,))
    sleeper.start()
    shutdown.stop_now()
    sleeper.join(HANG_SECONDS)
    assert not sleeper.is_alive()
    assert shutdown.is_overdue


def test_stop_now_without_a_request_requests_a_stop() -> None:
    shutdown = Shutdown(grace=HOURS)
    shutdown.stop_now()
    shutdown.request()
    assert shutdown.requested.is_set()
    assert shutdown.is_overdue


def test_no_sleep_goes_past_the_grace_period() -> None:
    shutdown = Shutdown(grace=0.0)
    shutdown.request()
    shutdown.sleep(HOURS)
    assert shutdown.is_overdue
