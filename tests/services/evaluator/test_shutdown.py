from services.evaluator.shutdown import Shutdown

HOURS = 10_000.0


def test_the_grace_period_begins_with_the_first_request() -> None:
    shutdown = Shutdown(grace=HOURS)
    assert not shutdown.requested.is_set()
    shutdown.request()
    assert shutdown.requested.is_set()
    assert not shutdown.overdue


def test_no_sleep_goes_past_the_grace_period() -> None:
    shutdown = Shutdown(grace=0.0)
    shutdown.request()
    shutdown.sleep(HOURS)
    assert shutdown.overdue
