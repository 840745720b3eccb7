"""A connection to the broker that does not let spare time pass."""

import pytest

from services.evaluator.queue_messages import IDLE_SECONDS, LOOK_SECONDS, PatientConnection


class Broker:
    """Has a few messages, and then nothing to say."""

    def __init__(self, *answers: BaseException | None) -> None:
        self.answers = list(answers)
        self.asked: list[float] = []
        self.name = "the broker"

    def drain_events(self, *, timeout: float) -> None:
        self.asked.append(timeout)
        answer = self.answers.pop(0)
        if answer is not None:
            raise answer


class Work:
    """A few pieces of work."""

    def __init__(self, pieces: int) -> None:
        self.pieces = pieces
        self.done = 0

    @property
    def waits(self) -> bool:
        return self.done < self.pieces

    def go_on(self) -> None:
        self.done += 1


def test_messages_go_before_other_work_and_quiet_is_used_for_it() -> None:
    broker, work = Broker(None, TimeoutError(), TimeoutError(), None, TimeoutError()), Work(2)
    connection = PatientConnection(broker, work)
    done = []
    for _ in range(4):
        connection.drain_events(timeout=2.0)
        done.append(work.done)
    assert done == [0, 1, 2, 2]
    with pytest.raises(TimeoutError):
        connection.drain_events(timeout=2.0)
    assert broker.asked == [IDLE_SECONDS] * 3 + [LOOK_SECONDS] * 2


def test_without_other_work_it_is_the_connection() -> None:
    broker = Broker(TimeoutError(), None)
    connection = PatientConnection(broker, None)
    with pytest.raises(TimeoutError):
        connection.drain_events(timeout=2.0)
    connection.drain_events(timeout=0.05)
    assert broker.asked == [LOOK_SECONDS, 0.05]
    assert connection.name == "the broker"


def test_a_broker_that_is_lost_is_no_quiet() -> None:
    work = Work(1)
    with pytest.raises(ConnectionResetError):
        PatientConnection(Broker(ConnectionResetError()), work).drain_events(timeout=2.0)
    assert work.done == 0
