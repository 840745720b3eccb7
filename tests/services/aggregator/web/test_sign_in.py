"""Sign-in at the page: sessions, cookies, roles, and what is refused."""

import asyncio

import httpx
import pytest
from starlette.requests import Request
from starlette.responses import PlainTextResponse

from modnorm.web.guard import Guard
from modnorm.wire.tokens import Role, TokenTable, make_token, write_tokens
from services.aggregator.web.sign_in import MOST_SESSIONS, SESSION_SECONDS, Sessions, SignIn
from services.common.access import current_caller
from services.common.access.token_gate import TokenGate
from services.common.settings import ServiceSettings

HTTP, HTTPS = "http://lab", "https://lab"


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


class Browser:
    """Keeps cookies between requests."""

    def __init__(self, app, base=HTTP):
        self.base, self.cookies = base, httpx.Cookies()
        self._app = app

    def send(self, method, path, **more):
        async def send():
            transport = httpx.ASGITransport(self._app)
            async with httpx.AsyncClient(
                transport=transport, base_url=self.base, cookies=self.cookies
            ) as client:
                answer = await client.request(method, path, **more)
                self.cookies.update(client.cookies)
                return answer

        return asyncio.run(send())

    def sign_in(self, token, **headers):
        return self.send("POST", "/sign-in", data={"token": token}, headers=headers)


@pytest.fixture
def browser(tokens):
    path, _ = tokens
    return Browser(Guard(SignIn(page, TokenGate(ServiceSettings(accepted_tokens=path))), None))


def test_without_a_session_only_the_form_and_the_style_sheet_are_served(browser):
    for path in ("/", "/runs/x", "/runs/x/candidates", "/compare"):
        answer = browser.send("GET", path)
        assert (answer.status_code, answer.headers["location"]) == (303, "/sign-in")
    form = browser.send("GET", "/sign-in")
    assert form.status_code == 200
    assert 'type="password"' in form.text
    assert "no-store" in form.headers["cache-control"]


@pytest.mark.parametrize("role", [Role.READ, Role.OPERATE])
def test_a_token_begins_a_session_of_its_tenant(browser, tokens, role):
    answer = browser.sign_in(tokens[1][role])
    assert (answer.status_code, answer.headers["location"]) == (303, "/")
    cookie = answer.headers["set-cookie"].lower()
    assert "httponly" in cookie
    assert "samesite=strict" in cookie
    assert "secure" not in cookie
    assert tokens[1][role] not in answer.headers["set-cookie"]
    assert browser.send("GET", "/").text == f"{role} of ours"


def test_the_cookie_is_secure_over_tls(browser, tokens):
    browser.base = HTTPS
    cookie = browser.sign_in(tokens[1][Role.READ]).headers["set-cookie"]
    assert cookie.startswith("__Host-modnorm=")
    assert "secure" in cookie.lower()
    assert browser.send("GET", "/").text == "read of ours"


@pytest.mark.parametrize("role", [Role.WORKER, Role.INTERNAL, Role.SUBMIT])
def test_a_token_without_a_reading_role_is_refused(browser, tokens, role):
    answer = browser.sign_in(tokens[1][role])
    assert answer.status_code == 403
    assert "read" in answer.text
    assert browser.send("GET", "/").status_code == 303


@pytest.mark.parametrize("token", ["", "x", "modnorm_read_" + "A" * 43, "<script>", "\x00"])
def test_a_wrong_token_is_refused(browser, token):
    answer = browser.sign_in(token)
    assert answer.status_code == 401
    assert "set-cookie" not in answer.headers
    assert "<script>" not in answer.text


def test_a_form_that_is_too_large_is_refused(browser):
    assert browser.sign_in("x" * 10_000).status_code == 401


def test_a_token_in_the_address_is_not_read(browser, tokens):
    answer = browser.send("GET", f"/?token={tokens[1][Role.READ]}")
    assert answer.headers["location"] == "/sign-in"


def test_a_form_of_another_site_is_refused(browser, tokens):
    answer = browser.sign_in(tokens[1][Role.READ], Origin="http://evil.example")
    assert answer.status_code == 403
    for origin in ("null", "http://[", ""):
        assert browser.sign_in(tokens[1][Role.READ], Origin=origin).status_code == 403
    assert browser.sign_in(tokens[1][Role.READ], Origin=HTTP).status_code == 303
    answer = browser.send("POST", "/sign-out", headers={"Origin": "http://evil.example"})
    assert answer.status_code == 403
    assert browser.send("GET", "/").text == "read of ours"


def test_signing_out_ends_the_session(browser, tokens):
    browser.sign_in(tokens[1][Role.READ])
    session = dict(browser.cookies)
    browser.send("POST", "/sign-out", headers={"Origin": HTTP})
    browser.cookies.update(session)
    assert browser.send("GET", "/").status_code == 303


def test_a_revoked_token_ends_its_sessions(browser, tokens):
    path, texts = tokens
    browser.sign_in(texts[Role.READ])
    assert browser.send("GET", "/").status_code == 200
    write_tokens(path, TokenTable())
    browser._app._app._gate._tokens._checked = 0.0
    assert browser.send("GET", "/").status_code == 401


def test_requests_count_against_the_rate_of_the_token(tokens):
    path, texts = tokens
    settings = ServiceSettings(accepted_tokens=path, rate_limit=1.0)
    browser = Browser(SignIn(page, TokenGate(settings)))
    browser.sign_in(texts[Role.READ])
    answers = [browser.send("GET", "/") for _ in range(5)]
    assert answers[-1].status_code == 429
    assert int(answers[-1].headers["retry-after"]) >= 1


def test_where_no_token_is_needed_everybody_is_admitted():
    browser = Browser(SignIn(page, TokenGate(ServiceSettings())))
    assert browser.send("GET", "/").text == " of default"


def test_sessions_end_in_time_and_in_number():
    now = [0.0]
    sessions = Sessions(lambda: now[0])
    first = sessions.begin("token", "one")
    others = [sessions.begin("token", "one") for _ in range(MOST_SESSIONS - 1)]
    foreign = sessions.begin("other", "two")
    assert sessions.token(first) == "token"
    sessions.begin("token", "one")
    assert sessions.token(first) is None
    assert sessions.token(others[0]) == "token"
    now[0] = SESSION_SECONDS
    assert sessions.token(others[0]) is sessions.token(foreign) is None
    assert sessions.token("") is None


def test_the_request_names_the_caller_to_the_templates(tokens):
    path, texts = tokens
    seen = []

    async def remember(scope, receive, send):
        seen.append(Request(scope).scope["modnorm.caller"])
        await page(scope, receive, send)

    browser = Browser(SignIn(remember, TokenGate(ServiceSettings(accepted_tokens=path))))
    browser.sign_in(texts[Role.READ])
    browser.send("GET", "/")
    assert seen == ["read"]
