"""Words for what gRPC itself says of a connection that was not made."""

import grpc
import pytest

from modnorm.errors import ModnormError, UnavailableError, UnreachableError
from modnorm.wire.status import code_of, from_neighbour, from_rpc_error, from_status, to_status

UNREACHED = "failed to connect to all addresses; last error: UNKNOWN: ipv4:127.0.0.1:9: "
REFUSED = f"{UNREACHED}Failed to connect to remote host: connect: Connection refused (111)"
TLS = (
    "Tls handshake failed (TSI_PROTOCOL_FAILURE): SSL_ERROR_SSL: error:1000007d:SSL routines:"
    "OPENSSL_internal:"
)
HOST = "Custom verification check failed with error: UNAUTHENTICATED: "


class Ended(grpc.RpcError, grpc.Call):
    """A call that ended without details of ours."""

    def __init__(self, details, code=grpc.StatusCode.UNAVAILABLE):
        self._details, self._code = details, code

    def code(self):
        return self._code

    def details(self):
        return self._details

    def trailing_metadata(self):
        return ()


Ended.__abstractmethods__ = frozenset()  # type: ignore[attr-defined]  # its others are unused


@pytest.mark.parametrize(
    ("details", "words"),
    [
        (REFUSED, "cannot connect to 127.0.0.1:9: Connection refused"),
        (
            "DNS resolution failed for lab:50051: C-ares status is not ARES_SUCCESS",
            "the host name of lab:50051 cannot be resolved",
        ),
    ],
)
def test_a_connection_that_was_not_made_is_told_in_our_words(details, words):
    error = from_rpc_error(Ended(details))
    assert isinstance(error, UnreachableError)
    assert error.message == words
    assert error.remedy == "is a server running at that address?"


@pytest.mark.parametrize(
    ("kind", "words", "remedy"),
    [
        ("Failed to connect to remote host: ", "Socket closed", "MODNORM_TLS_CA"),
        (TLS, "CERTIFICATE_VERIFY_FAILED: certificate has expired", "has not expired"),
        (TLS, "WRONG_VERSION_NUMBER: Invalid certificate", "unset MODNORM_TLS_CA"),
        (HOST, "Hostname Verification Check failed.", "names the host"),
    ],
)
def test_a_failed_handshake_is_told_with_its_cause_and_remedy(kind, words, remedy):
    error = from_rpc_error(Ended(f"{UNREACHED}{kind}{words}"))
    assert error.message == f"cannot connect to 127.0.0.1:9: {words}"
    assert remedy in (error.remedy or "")


@pytest.mark.parametrize("code", ["UNIMPLEMENTED", "DEADLINE_EXCEEDED"])
def test_a_neighbour_that_does_not_serve_the_call_is_named_and_called_again(code):
    error = from_neighbour(Ended("Method not found!", grpc.StatusCode[code]), "calibrator")
    assert isinstance(error, UnavailableError)
    assert "calibrator" in error.message
    assert error.remedy


def test_an_internal_error_of_grpc_is_no_verdict_on_a_candidate():
    error = from_rpc_error(Ended("Received RST_STREAM", grpc.StatusCode.INTERNAL))
    assert type(error) is ModnormError


def test_an_unreachable_server_stays_so_over_another_hop():
    error = UnreachableError("cannot connect", remedy="start it")
    assert code_of(error) is grpc.StatusCode.UNAVAILABLE
    assert type(from_status(to_status(error))) is UnreachableError
