"""The page of an aggregator: its port, and who may reach it."""

import json
import ssl
import subprocess
from pathlib import Path

import httpx
import pytest

from modnorm.errors import PreconditionError, UnavailableError
from modnorm.services.aggregator.web.page_server import PageServer
from modnorm.services.common.settings import AggregatorSettings
from modnorm.v1.experiment_pb2 import Questions
from modnorm.wire.tokens import Role, TokenTable, make_token, write_tokens
from tests.faults import error_at


@pytest.fixture
def serve(catalog):
    servers = []

    def serve(**settings):
        server = PageServer(AggregatorSettings(**settings), catalog)
        server.start()
        servers.append(server)
        return f"http://127.0.0.1:{server.port}"

    yield serve
    for server in servers:
        server.stop()


def test_it_serves_the_experiments_on_loopback(serve, world):
    experiment = world.select()
    world.work(experiment)
    url = serve(page_address="127.0.0.1:0")
    assert experiment in httpx.get(url).text
    assert httpx.get(f"{url}/runs/{experiment}").status_code == 200
    assert httpx.get(f"{url}/runs/{experiment}/candidates").status_code == 200
    assert httpx.get(f"{url}/runs/{experiment}/questions/3").status_code == 200
    assert httpx.get(f"{url}/runs/other").status_code == 404


def test_it_serves_an_experiment_that_only_votes(serve, world):
    run, experiments = world.select(), world.experiments
    world.work(run)
    rows = [json.dumps({"question": f"Say {row}."}) for row in range(9)]
    asked = experiments.admit_questions(Questions(of=run, rows=rows))
    made = experiments.create("asked", asked).experiment.id
    url = serve(page_address="127.0.0.1:0")
    assert "experts answer 9 questions" in httpx.get(f"{url}/runs/{made}").text
    world.work(made)
    assert made in httpx.get(url).text
    assert httpx.get(f"{url}/runs/{made}").status_code == 200
    assert httpx.get(f"{url}/runs/{made}/candidates").status_code == 409


def test_without_tokens_foreign_host_names_are_refused(serve):
    url = serve(page_address="127.0.0.1:0", page_hosts="lab.example, Other")
    assert httpx.get(url, headers={"Host": "evil.example"}).status_code == 421
    assert httpx.get(url, headers={"Host": "lab.example"}).status_code == 200
    assert httpx.get(url, headers={"Host": "other:80"}).status_code == 200


def test_with_tokens_a_reader_sends_one_as_password(serve, world, tmp_path):
    text, token = make_token("reader", [Role.READ])
    path = tmp_path / "tokens.yaml"
    write_tokens(path, TokenTable(tokens=(token,)))
    experiment = world.create()
    url = serve(page_address="127.0.0.1:0", accepted_tokens=path)
    assert httpx.get(url).status_code == 401
    with httpx.Client(base_url=url, auth=("", text)) as browser:
        answer = browser.get("/")
        assert experiment in answer.text
        assert "reader" in answer.text
        assert browser.get("/static/style.css").status_code == 200


@pytest.mark.parametrize("address", ["0.0.0.0:0", "192.0.2.1:0", "lab:0"])
def test_without_tokens_it_listens_on_loopback_only(catalog, address):
    with pytest.raises(PreconditionError, match="everybody who reaches"):
        PageServer(AggregatorSettings(page_address=address), catalog)


def test_a_port_in_use_is_named(serve, catalog):
    port = serve(page_address="127.0.0.1:0").rpartition(":")[2]
    other = PageServer(AggregatorSettings(page_address=f"127.0.0.1:{port}"), catalog)
    with error_at("MODNORM_PAGE_ADDRESS", kind=UnavailableError):
        other.start()
    other.stop()


@pytest.fixture(scope="module")
def certificates(tmp_path_factory):
    """Folder of a lab's certificates, for `localhost` and for a client."""
    folder = tmp_path_factory.mktemp("certificates")
    script = Path(__file__).parents[4] / "scripts/make-certificates"
    subprocess.run([script, folder, "localhost"], check=True, capture_output=True)
    return folder


@pytest.mark.parametrize("mutual", [False, True])
def test_it_uses_the_certificates_of_the_api(serve, certificates, mutual):
    url = serve(
        page_address="127.0.0.1:0",
        tls_ca=certificates / "tls_ca",
        tls_cert=certificates / "tls_cert",
        tls_key=certificates / "tls_key",
        tls_client_certificates=mutual,
    ).replace("http://127.0.0.1", "https://localhost")
    context = ssl.create_default_context(cafile=certificates / "tls_ca")
    if mutual:
        with pytest.raises(httpx.HTTPError):
            httpx.get(url, verify=context)
        context.load_cert_chain(certificates / "tls_client_cert", certificates / "tls_client_key")
    assert httpx.get(url, verify=context).status_code == 200
