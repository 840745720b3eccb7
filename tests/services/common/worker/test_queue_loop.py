"""The loop of a worker whose broker is down."""

import threading

from modnorm.services.common.worker.queue_loop import QueueLoop
from verification.labs.waiting import HANG_SECONDS, wait_until


def test_a_loop_ends_while_its_broker_is_down(caplog) -> None:
    loop = QueueLoop(
        "redis://127.0.0.1:1/0", queue="q", task="modnorm.evaluate", handle=print, name="w"
    )
    thread = threading.Thread(target=loop.run, daemon=True)
    thread.start()
    wait_until(lambda: "no connection to the broker" in caplog.text, "a refusal")
    assert not loop.is_connected
    loop.end()
    thread.join(HANG_SECONDS)
    assert not thread.is_alive()
