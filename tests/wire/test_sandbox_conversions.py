"""What crosses the wire comes back the same; what is missing counts as broken."""

import pytest

from modnorm.errors import EngineError
from modnorm.sandbox import (
    Guarantee,
    Isolation,
    Limits,
    Mechanism,
    Program,
    ProgramOutcome,
    Verdict,
)
from modnorm.v1 import sandbox_pb2
from modnorm.wire import remote_sandbox as codec
from tests.faults import error_at


def test_a_program_crosses():
    program = Program(("a = 1",), ("assert a == 1",), Limits(tasks=3))
    assert codec.program_from_proto(codec.program_to_proto(program)) == program


def test_limits_are_checked():
    message = sandbox_pb2.ExecuteRequest(limits=sandbox_pb2.SandboxLimits(wall_seconds=1e9))
    with error_at("limits.wall_seconds"):
        codec.program_from_proto(message)


@pytest.mark.parametrize("verdict", Verdict)
def test_an_outcome_crosses(verdict):
    outcome = ProgramOutcome(verdict, "why", 2, "said", 0.5, 0.75)
    assert codec.outcome_from_proto(codec.outcome_to_proto(outcome)) == outcome


def test_an_unknown_verdict_is_no_outcome():
    with pytest.raises(EngineError):
        codec.outcome_from_proto(sandbox_pb2.ExecuteResponse())


def test_an_isolation_crosses():
    isolation = Isolation(
        broken={Guarantee.NO_NETWORK: "seen"},
        mechanisms=(Mechanism.SECCOMP,),
        refusals={Mechanism.NAMESPACES: "refused"},
        landlock_abi=4,
        writable_scratch=False,
    )
    assert codec.isolation_from_proto(codec.isolation_to_proto(isolation)) == isolation


def test_a_guarantee_that_nobody_knows_is_an_error():
    with pytest.raises(EngineError):
        codec.isolation_from_proto(sandbox_pb2.GetIsolationResponse(guarantees=["invented"]))


def test_a_guarantee_that_is_not_named_is_broken():
    message = sandbox_pb2.GetIsolationResponse(healthy=True, guarantees=["no_network"])
    isolation = codec.isolation_from_proto(message)
    assert not isolation.healthy
    assert Guarantee.NO_NETWORK not in isolation.broken
    assert Guarantee.NO_FOREIGN_READS in isolation.broken
