from services.common.exponential_backoff import Backoff


def test_pauses_double_up_to_a_bound_and_reset_after_success():
    now = [0.0]
    backoff = Backoff(0.5, 3.0, clock=lambda: now[0])
    pauses = []
    for lasted in (0, 0, 1, 0, 2.9, 3.1, 0):
        now[0] += lasted
        pauses.append(backoff.after_failure())
        now[0] += pauses[-1]
    assert pauses == [0.5, 1, 2, 3, 3, 0.5, 1]
