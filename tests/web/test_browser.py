"""The page in a real browser: a live run, its results, and hostile completions."""

import dataclasses
from types import SimpleNamespace

import pytest
from selenium.webdriver.common.by import By

from modnorm import Client
from modnorm.analysis.parquet_files import read_answers, write_answers
from modnorm.services.aggregator.experiments.run_directories import RunDirectories
from modnorm.services.aggregator.storage.database import Database
from modnorm.services.aggregator.web.lab_catalog import LabCatalog
from modnorm.services.aggregator.web.page_server import PageServer
from modnorm.services.common.settings import AggregatorSettings
from modnorm.services.embedded import start
from modnorm.spec import parse_spec
from modnorm.wire.tokens import Role, TokenTable, make_token, write_tokens
from tests.web.conftest import SPEC
from verification.labs.browser import NARROW, WIDE, console_errors, open_browser, set_size
from verification.labs.servers import MissingServerError
from verification.labs.waiting import wait_until

HOSTILE = "</pre><script>document.title = 'ran'</script><img src=x onerror=document.title='ran'>"


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    try:
        with open_browser(tmp_path_factory.mktemp("profile")) as driver:
            yield driver
    except MissingServerError as missing:
        pytest.fail(f"{missing}, which `make test` does", pytrace=False)


@pytest.fixture(autouse=True)
def a_clean_console(browser):
    """A wide page before each test; no error in the console after it."""
    set_size(browser, WIDE)
    yield
    assert console_errors(browser) == []


@pytest.fixture(scope="module")
def lab(tmp_path_factory):
    """A lab whose page needs a token: its address, the token, and a client."""
    folder = tmp_path_factory.mktemp("lab")
    text, token = make_token("reader", [Role.READ])
    write_tokens(folder / "tokens.yaml", TokenTable(tokens=(token,)))
    settings = AggregatorSettings(
        page_address="127.0.0.1:0", accepted_tokens=folder / "tokens.yaml"
    )
    with start(folder / "state", cache=folder / "cache") as running:
        database = Database(f"sqlite:///{folder}/state/modnorm.db")
        runs = RunDirectories(folder / "state" / "runs", database)
        page = PageServer(settings, LabCatalog(database, runs))
        page.start()
        with Client(running.target, credentials=running.credentials) as client:
            yield SimpleNamespace(
                url=f"http://127.0.0.1:{page.port}", token=text, client=client, folder=folder
            )
        page.stop()
        database.close()


@pytest.fixture(scope="module")
def signed_in(browser, lab):
    """Send the token as password once; the browser repeats it."""
    browser.get(lab.url.replace("://", f"://reader:{lab.token}@"))
    browser.get(lab.url)


@pytest.fixture(scope="module")
def watched(browser, lab, signed_in):
    """A run that the browser watched from its start to its end, and what the page showed."""
    experiment = lab.client.submit(parse_spec(SPEC))
    address = f"{lab.url}/runs/{experiment.id}"
    browser.get(address)
    browser.execute_script("window.first = true")
    seen = []

    def ended():
        seen.append(
            browser.execute_script(
                "const live = document.getElementById('live');"
                "return {text: live && live.innerText, first: window.first === true}"
            )
        )
        return seen[-1]["text"] is None and browser.find_elements(By.CSS_SELECTOR, "figure img")

    wait_until(ended, "the page shows the results", pause=0.2)
    assert console_errors(browser) == []
    return SimpleNamespace(id=experiment.id, address=address, seen=seen)


@pytest.fixture(scope="module")
def hostile_run(lab, watched, start_modnorm):
    """Address of `modnorm view` with the run's directory, whose completions hold scripts."""
    directory = lab.folder / "downloaded"
    lab.client.download(watched.id, directory)
    write_answers(
        directory,
        (
            dataclasses.replace(answer, completion=HOSTILE, vote=HOSTILE, prompt=HOSTILE)
            for answer in list(read_answers(directory))
        ),
    )
    view = start_modnorm("view", directory)
    view.wait_for("\n")
    return f"{view.stdout.strip()}runs/downloaded"


def text_of(browser):
    return browser.find_element(By.TAG_NAME, "main").text


def test_a_live_run_is_watched_to_its_end(browser, watched):
    live = [each for each in watched.seen if each["text"]]
    assert len({each["text"] for each in live}) > 1, "the progress did not change"
    assert all(each["first"] for each in live), "the page was loaded again while the run went on"
    assert any("jobs done" in each["text"] for each in live)
    browser.get(watched.address)
    assert "95 %" in text_of(browser)
    assert browser.find_elements(By.CSS_SELECTOR, "figure img")
    assert not browser.find_elements(By.CSS_SELECTOR, "script")


def test_the_list_shows_the_vote_of_a_run_that_ends(browser, lab, signed_in):
    other = {**SPEC, "method": {"name": "randopt", "radius": 0.02}}
    name = f"run-{lab.client.submit(parse_spec(other)).id}"
    row = f"return document.getElementById('{name}').innerText"
    browser.get(lab.url)
    browser.execute_script("window.first = true")
    assert "%" not in browser.execute_script(row)
    wait_until(lambda: "%" in browser.execute_script(row), "the list shows the vote", pause=0.2)
    assert browser.execute_script("return window.first === true"), "the page was loaded again"


@pytest.mark.parametrize("page", ["questions/17", "candidates/-1", "candidates/-1/heldout/17"])
def test_scripts_in_completions_are_text(browser, hostile_run, page):
    browser.get(f"{hostile_run}/{page}")
    title = browser.title
    assert title != "ran"
    assert "onerror=document.title='ran'>" in text_of(browser)
    assert browser.execute_script("return document.scripts.length + document.images.length") == 0
    assert browser.title == title


def test_the_policy_stops_scripts_and_styles_that_would_be_injected(browser, hostile_run):
    browser.get(f"{hostile_run}/questions/17")
    browser.execute_script(
        "const script = document.createElement('script');"
        "script.textContent = 'document.title = \"ran\"';"
        "document.body.append(script);"
        "const image = new Image();"
        "image.src = 'http://192.0.2.1/x.png';"
        "document.body.append(image)"
    )
    assert browser.title != "ran"
    refused = console_errors(browser)
    assert any("script-src" in each for each in refused), refused
    assert any("img-src" in each for each in refused), refused


@pytest.mark.parametrize("size", [WIDE, NARROW])
def test_no_page_scrolls_sideways(browser, lab, watched, size):
    set_size(browser, size)
    for page in (
        "",
        f"/runs/{watched.id}",
        f"/runs/{watched.id}/candidates",
        f"/runs/{watched.id}/candidates/-1",
        f"/runs/{watched.id}/questions",
        f"/runs/{watched.id}/questions/17",
    ):
        browser.get(f"{lab.url}{page}")
        assert browser.execute_script("return innerWidth") == size[0]
        overflow = browser.execute_script(
            "return document.documentElement.scrollWidth - document.documentElement.clientWidth"
        )
        assert overflow <= 0, page
