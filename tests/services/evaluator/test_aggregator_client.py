"""A worker's calls to an aggregator that cannot be reached."""

import threading
from contextlib import suppress

import grpc

from modnorm.errors import UnavailableError
from modnorm.services.evaluator.aggregator_client import AggregatorClient
from modnorm.services.evaluator.shutdown import Shutdown
from modnorm.v1.evaluation_pb2_grpc import JobServiceStub
from verification.labs.servers import free_port
from verification.labs.waiting import HANG_SECONDS, wait_until


def test_a_claim_that_waits_for_an_aggregator_logs_why(caplog):
    shutdown = Shutdown(0.0)
    target = f"127.0.0.1:{free_port()}"
    with grpc.insecure_channel(target) as channel:
        client = AggregatorClient(JobServiceStub(channel), worker="far", shutdown=shutdown)

        def claim_until_stop():
            with suppress(UnavailableError):
                client.claim()

        claim = threading.Thread(target=claim_until_stop)
        claim.start()
        try:
            expected = f"not claimed: cannot connect to {target}"
            wait_until(lambda: expected in caplog.text, "the reason is logged")
            assert claim.is_alive()
        finally:
            shutdown.request()
            claim.join(HANG_SECONDS)
    assert not claim.is_alive()
