"""A lab with tokens, and clients under any token."""

import contextlib
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import cast

import grpc
import pytest

from modnorm.client.client import Client
from modnorm.errors import ModnormError
from modnorm.wire.channel import open_channel
from modnorm.wire.connection import Credentials
from modnorm.wire.status import code_of
from modnorm.wire.tokens import Role, add_token, make_token
from verification.fuzz.stored import contents, small_spec
from verification.labs.secured_lab import SecuredLab, secured_lab
from verification.labs.waiting import HANG_SECONDS


@pytest.fixture(scope="session")
def lab(tmp_path_factory) -> Iterator[SecuredLab]:
    """One lab for all tests that do not change it."""
    with secured_lab(tmp_path_factory.mktemp("secured")) as running:
        yield running


@pytest.fixture(scope="session")
def tokens(lab):
    """Credentials by kind of fault."""
    gone = datetime.now(UTC) - timedelta(seconds=1)
    made = {role.value: lab.token(role.value, [role]) for role in Role}
    people = [Role.SUBMIT, Role.READ]
    made["team-a"] = lab.token("team-a", people, tenant="team-a")
    made["team-b"] = lab.token("team-b", people, tenant="team-b")
    made["expired"] = lab.token("expired", list(Role), expires=gone)
    made["forged"] = Credentials(
        token=type(made["read"].token)(make_token("read", [Role.READ])[0])
    )
    made["none"] = Credentials()
    return made


@pytest.fixture(scope="session")
def spec():
    """Return a small spec; arguments replace sections."""
    return small_spec


@pytest.fixture
def client(lab, tokens):
    """Open clients of the aggregator by the name of their token."""
    with contextlib.ExitStack() as stack:

        def connect(name):
            shown = tokens[name] if isinstance(name, str) else name
            target = lab.targets["aggregator"]
            return stack.enter_context(Client(target, credentials=shown, timeout=HANG_SECONDS))

        yield connect


@pytest.fixture
def channel(lab, tokens):
    """Open channels by service and name of the token."""
    with contextlib.ExitStack() as stack:

        def connect(name, service="aggregator"):
            shown = tokens[name] if isinstance(name, str) else name
            return stack.enter_context(open_channel(lab.targets[service], shown, ()))

        yield connect


@pytest.fixture
def refused():
    """Expect a call to be refused with one error."""

    @contextlib.contextmanager
    def expect(code):
        with pytest.raises((grpc.RpcError, ModnormError)) as raised:
            yield
        met = raised.value
        found = code_of(met) if isinstance(met, ModnormError) else cast("grpc.Call", met).code()
        assert found is code, met

    return expect


@pytest.fixture
def stored(lab):
    """Return everything that the lab's database holds."""
    return lambda: contents(lab)


@pytest.fixture
def write_token(lab):
    """Create an accepted token and write it to a file."""

    def write(file, name, role, **named):
        text, kept = make_token(name, [role], **named)
        add_token(lab.accepted, kept)
        file.write_text(f"{text}\n")

    return write


@pytest.fixture(scope="session")
def exhaust():
    """Read all responses of all calls."""

    def read(calls):
        for answers in calls:
            for _ in answers:
                pass

    return read
