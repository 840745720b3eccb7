import pytest

from modnorm.cli.pace import Pace


def test_the_rate_is_unknown_before_anything_is_done():
    pace = Pace(opened=100.0)
    pace.count(0, 101.0)
    pace.count(1, 190.0)
    assert pace.rate is None
    assert pace.remaining(10) is None


def test_the_rate_and_the_rest_count_from_the_first_finished_item():
    pace = Pace(opened=100.0)
    pace.count(2, 190.0)
    pace.count(4, 194.0)
    assert pace.rate == pytest.approx(0.5)
    assert pace.remaining(10) == pytest.approx(12.0)


def test_what_was_finished_before_the_start_does_not_count():
    pace = Pace(opened=100.0)
    pace.count(5, 50.0)
    pace.count(6, 190.0)
    pace.count(7, 194.0)
    assert pace.rate == pytest.approx(0.25)


def test_events_that_finish_nothing_do_not_slow_the_rate():
    pace = Pace(opened=100.0)
    pace.count(1, 190.0)
    pace.count(2, 192.0)
    pace.count(2, 200.0)
    assert pace.rate == pytest.approx(0.5)
