"""Access to the page: tokens as passwords, roles, and what is refused."""

import asyncio

import httpx
import pytest
from starlette.responses import PlainTextResponse

from modnorm.services.aggregator.web.page_server import PageAccess
from modnorm.services.common.access import TokenGate, current_caller
from modnorm.services.common.settings import ServiceSettings
from modnorm.wire.tokens import Role, TokenTable, make_token, write_tokens


@pytest.fixture
def tokens(tmp_path):
    """File of accepted tokens, and the text of each by role."""
    made = {role: make_token(role.value, [role], tenant="ours") for role in Role}
    path = tmp_path / "tokens.yaml"
    write_tokens(path, TokenTable(tokens=tuple(kept for _, kept in made.values())))
    return path, {role: text for role, (text, _) in made.items()}


async def page(scope, receive, send):
    """Name the caller, as the pages see it."""
    caller = current_caller()
    await PlainTextResponse(f"{caller.name} of {caller.tenant}")(scope, receive, send)


@pytest.fixture
def get(tokens):
    """Get a path, with the words of `httpx.AsyncClient.get`."""
    app = PageAccess(page, TokenGate(ServiceSettings(accepted_tokens=tokens[0])))
    return lambda path="/", **words: answered(app, path, **words)


def answered(app, path="/", **words):
    async def send():
        transport = httpx.ASGITransport(app)
        async with httpx.AsyncClient(transport=transport, base_url="http://lab") as client:
            return await client.get(path, **words)

    return asyncio.run(send())


@pytest.mark.parametrize("path", ["/", "/runs/x", "/static/style.css"])
def test_without_a_token_browsers_are_asked_for_one(get, path):
    answer = get(path)
    assert answer.status_code == 401
    assert answer.headers["www-authenticate"].startswith("Basic ")


@pytest.mark.parametrize("role", [Role.READ, Role.OPERATE])
def test_a_token_is_the_password_of_any_name_or_a_bearer_token(get, tokens, role):
    text = tokens[1][role]
    for name in ("", "me"):
        assert get(auth=(name, text)).text == f"{role} of ours"
    assert get(headers={"Authorization": f"Bearer {text}"}).text == f"{role} of ours"


@pytest.mark.parametrize("role", [Role.WORKER, Role.INTERNAL, Role.SUBMIT])
def test_a_token_without_a_reading_role_is_refused(get, tokens, role):
    answer = get(auth=("", tokens[1][role]))
    assert answer.status_code == 403
    assert "read" in answer.text


@pytest.mark.parametrize("header", ["Basic", "Basic !", "Basic /w==", "Digest x", "Bearer"])
def test_malformed_credentials_are_refused(get, header):
    assert get(headers={"Authorization": header}).status_code == 401


def test_a_revoked_token_is_refused(tokens):
    path, texts = tokens
    gate = TokenGate(ServiceSettings(accepted_tokens=path))
    app = PageAccess(page, gate)
    assert answered(app, auth=("", texts[Role.READ])).status_code == 200
    write_tokens(path, TokenTable())
    assert gate._tokens is not None
    gate._tokens._checked = 0.0
    assert answered(app, auth=("", texts[Role.READ])).status_code == 401
