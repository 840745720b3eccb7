"""A worker's calls to an aggregator that cannot be reached."""

import threading

import grpc

from modnorm.services.common.worker.aggregator_calls import claim_or_log
from modnorm.services.common.worker.shutdown import Shutdown
from modnorm.services.evaluator.aggregator_client import AggregatorClient
from modnorm.v1.evaluation_pb2_grpc import JobServiceStub
from verification.labs.servers import free_port
from verification.labs.waiting import HANG_SECONDS, wait_until


def test_a_claim_that_waits_for_an_aggregator_logs_why(caplog):
    shutdown = Shutdown(0.0)
    target = f"127.0.0.1:{free_port()}"
    with grpc.insecure_channel(target) as channel:
        client = AggregatorClient(JobServiceStub(channel), worker="far", shutdown=shutdown)
        claim = threading.Thread(target=claim_or_log, args=(client.claim, "job"))
        claim.start()
        try:
            expected = f"not claimed: cannot connect to {target}"
            wait_until(lambda: expected in caplog.text, "the reason is logged")
            assert claim.is_alive()
        finally:
            shutdown.request()
            claim.join(HANG_SECONDS)
    assert not claim.is_alive()
