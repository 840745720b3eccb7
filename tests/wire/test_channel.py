import pytest
from pydantic import SecretStr

from modnorm.client.client import Client
from modnorm.errors import PreconditionError
from modnorm.wire.channel import Credentials
from tests.faults import error_at


@pytest.mark.parametrize(
    "read",
    [
        lambda client, events: client.get("e1"),
        lambda client, events: next(iter(client.list())),
        lambda client, events: next(events),
    ],
    ids=["call", "pages", "stream"],
)
def test_a_call_over_a_closed_connection_is_refused(read, free_address):
    with Client(free_address) as client:
        events = client.watch("e1")
    with pytest.raises(PreconditionError, match="closed"):  # gRPC alone ends the process
        read(client, events)


@pytest.mark.parametrize("text", ["one\nanother", "modn\u00f6rm", "a\0b", "\ufffd"])
@pytest.mark.parametrize("kept", ["variable", "file"])
def test_what_is_no_token_is_refused_with_its_setting(free_address, tmp_path, text, kept):
    file = tmp_path / "token"
    file.write_text(text)
    shown = Credentials(token_file=file) if kept == "file" else Credentials(SecretStr(text))
    with Client(free_address, credentials=shown) as client:
        for call in (lambda: client.get("e1"), lambda: next(client.watch("e1"))):
            with error_at("MODNORM_TOKEN" + "_FILE" * (kept == "file")) as raised:
                call()
            assert text not in str(raised.value)


@pytest.mark.parametrize("given", ["tls_cert", "tls_key"])
def test_no_token_goes_in_clear_beside_a_certificate(free_address, tmp_path, given):
    shown = Credentials(SecretStr("secret"), **{given: tmp_path / "file.pem"})
    with error_at("MODNORM_TLS_CA", "nothing would be encrypted"):
        Client(free_address, credentials=shown)
