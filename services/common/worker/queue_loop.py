"""A Celery worker that takes job ids from one queue, in the thread that runs it."""

from collections.abc import Callable
from typing import NoReturn

from celery import Celery
from celery.exceptions import WorkerShutdown
from celery.worker import WorkController

from modnorm.services.common.queue import make_celery
from modnorm.services.common.worker.queue_messages import QueueConsumer


class QueueLoop:
    """Passes the job id of each message to a function, one after another.

    A message is acknowledged when the function returns. It may raise Celery's `Reject`.

    Args:
        broker_url: The broker.
        queue: Name of the queue.
        task: Name of the task in its messages.
        handle: Called with each job id.
        name: Name of the worker at the broker.
    """

    def __init__(
        self, broker_url: str, *, queue: str, task: str, handle: Callable[[str], None], name: str
    ) -> None:
        self._app = _celery_app(broker_url)
        # Not shared: this process may hold other Celery applications with their own workers.
        self._app.task(handle, name=task, shared=False)
        self._controller = _solo_controller(self._app, f"{name}-{id(self):x}", queue)

    @property
    def is_connected(self) -> bool:
        """Whether the loop is connected to the broker."""
        connection = self._controller.consumer.connection
        return connection is not None and bool(connection.connected)

    def run(self) -> None:
        """Handle messages until `end` is called; wait for a broker that is down."""
        # Celery finds tasks through the thread's current application.
        self._app.set_current()
        self._controller.start()

    def end(self) -> None:
        """Make the loop end in its own thread, after the present message; from any thread."""
        self._controller.consumer.call_soon(_shut_down)


def _solo_controller(app: Celery, hostname: str, queue: str) -> WorkController:
    """Return Celery's controller for a worker that runs tasks in its own thread."""
    return app.WorkController(
        hostname=hostname,
        pool="solo",
        concurrency=1,
        queues=[queue],
        use_eventloop=False,  # a task of the solo pool would block it
        without_gossip=True,
        without_mingle=True,
        without_heartbeat=True,
    )


def _celery_app(broker_url: str) -> Celery:
    app = make_celery(broker_url)
    app.conf.update(
        # A solo worker answers no command during a job.
        worker_enable_remote_control=False,
        broker_connection_max_retries=None,
        # Celery warns if this is unset. A solo worker runs no task when it notices a loss.
        worker_cancel_long_running_tasks_on_connection_loss=True,
        worker_consumer=QueueConsumer,
    )
    return app


def _shut_down() -> NoReturn:
    raise WorkerShutdown(0)
