"""Leases expire only after workers could call for a whole lease."""

from types import SimpleNamespace

import pytest

from modnorm.services.aggregator.jobs import reaper

LEASE, PAUSE = 60.0, 5.0


class Time:
    """A monotonic clock, and a clock that can be set."""

    def __init__(self):
        self.now, self.date = 100.0, 1e9

    def passes(self, seconds):
        self.now += seconds
        self.date += seconds


@pytest.fixture
def time(monkeypatch):
    time = Time()
    monkeypatch.setattr(reaper, "time", SimpleNamespace(monotonic=lambda: time.now))
    return time


@pytest.fixture
def reachability(time):
    return reaper.Reachability(LEASE, PAUSE)


def looks(reachability, time, seconds):
    """Check every five seconds; return the seconds until leases could expire, if they could."""
    for passed in range(0, seconds + 1, 5):
        if reachability.check(time.date):
            return passed
        time.passes(5.0)
    return None


def test_leases_expire_one_lease_after_the_start(reachability, time):
    assert looks(reachability, time, 300) == 60


def test_leases_expire_one_lease_after_an_outage(reachability, time):
    looks(reachability, time, 300)
    time.passes(36.0)
    assert looks(reachability, time, 300) == 60


def test_a_short_gap_changes_nothing(reachability, time):
    looks(reachability, time, 300)
    for _ in range(10):
        time.passes(34.0)
        assert reachability.check(time.date)


@pytest.mark.parametrize(("jump", "counts"), [(3600.0, 60), (-3600.0, 0)])
def test_a_clock_set_forward_expires_no_lease(reachability, time, jump, counts):
    looks(reachability, time, 300)
    time.date += jump
    assert looks(reachability, time, 300) == counts


def test_rare_checks_are_no_gap(time):
    reachability = reaper.Reachability(LEASE, 120.0)
    for _ in range(2):
        time.passes(121.0)
        assert reachability.check(time.date)
