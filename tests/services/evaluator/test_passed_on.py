from collections.abc import Callable, Iterator

import pytest
from typing_extensions import override

from modnorm.v1 import evaluation_pb2 as messages
from services.evaluator.aggregator_client import AggregatorClient
from services.evaluator.job_runner import JobRunner
from services.evaluator.job_scoring import JobScorer
from services.evaluator.model_cache import Loading
from services.evaluator.shutdown import Shutdown

AddJob = Callable[..., messages.Job]


class OnOffer(dict[str, messages.Job]):
    """Jobs that stay on offer: who is given one hands it back before it is asked for again."""

    @override
    def pop(self, key: str, default: object = None) -> messages.Job | None:  # type: ignore[override]  # as it is called
        return self.get(key)


@pytest.fixture
def resting_runner(client: AggregatorClient, shutdown: Shutdown) -> Iterator[JobRunner]:
    scorer = JobScorer(client, Loading(roots=()))
    runner = JobRunner(client, shutdown, scorer, heartbeat_seconds=0.05, resting=3)
    yield runner
    runner.close()


def test_a_job_of_another_kind_is_passed_on_once_and_done_after_those_that_rest(
    resting_runner: JobRunner, aggregator, add_job: AddJob
) -> None:
    aggregator.jobs = OnOffer()
    add_job("a", may_stop=True)
    add_job("b", experiment_id="f", may_stop=True)
    resting_runner.begin("a")
    assert resting_runner.has_parked
    resting_runner.begin("b")
    assert aggregator.failures["b"].kind == messages.FAILURE_KIND_RELEASED
    resting_runner.finish_parked()
    resting_runner.close()
    assert list(aggregator.reports) == ["a", "b"]
