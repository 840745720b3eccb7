from collections.abc import Callable, Iterator

import pytest
from typing_extensions import override

from modnorm.services.evaluator.aggregator_client import AggregatorClient
from modnorm.services.evaluator.job_runner import JobRunner
from modnorm.services.evaluator.job_scoring import JobScorer
from modnorm.services.evaluator.model_cache import Loading
from modnorm.services.evaluator.shutdown import Shutdown
from modnorm.v1 import evaluation_pb2 as messages
from tests.services.evaluator.run_job import begin_job, run_job

AddJob = Callable[..., messages.Job]


class OnOffer(dict[str, messages.Job]):
    """Jobs that can be claimed repeatedly: a worker releases a job before the next claim."""

    @override
    def pop(self, key: str, default: object = None) -> messages.Job | None:  # type: ignore[override]  # as the test calls it
        return self.get(key)


@pytest.fixture
def parking_runner(client: AggregatorClient, shutdown: Shutdown) -> Iterator[JobRunner]:
    scorer = JobScorer(client, Loading(roots=()))
    runner = JobRunner(client, shutdown, scorer, heartbeat_seconds=0.05, parked_limit=3)
    yield runner
    runner.close()


def test_a_job_of_another_state_is_passed_on_once_and_done_after_parked_jobs(
    parking_runner: JobRunner, aggregator, add_job: AddJob
) -> None:
    aggregator.jobs = OnOffer()
    add_job("a", may_stop=True)
    add_job("b", experiment_id="f", may_stop=True)
    begin_job(parking_runner, "a")
    assert parking_runner.has_parked
    begin_job(parking_runner, "b")
    assert aggregator.failures["b"].kind == messages.FAILURE_KIND_RELEASED
    assert not parking_runner.has_parked
    run_job(parking_runner, "b")
    assert list(aggregator.reports) == ["a", "b"]
