"""Certificates of the script with a real service that requires mutual TLS."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from modnorm.services.common.healthcheck import check
from modnorm.wire.connection import Credentials
from verification.labs.servers import free_port
from verification.labs.waiting import wait_until

SCRIPT = Path(__file__).parents[2] / "scripts/make-certificates"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("secrets")
    subprocess.run([SCRIPT, path, "lab.example", "10.0.0.7"], check=True, capture_output=True)
    return path


@pytest.fixture(scope="module")
def target(folder):
    """A service that refuses callers without a certificate."""
    target = f"127.0.0.1:{free_port()}"
    environment = os.environ | {
        "MODNORM_BIND_ADDRESS": target,
        "MODNORM_TLS_CA": str(folder / "tls_ca"),
        "MODNORM_TLS_CERT": str(folder / "tls_cert"),
        "MODNORM_TLS_KEY": str(folder / "tls_key"),
        "MODNORM_TLS_CLIENT_CERTIFICATES": "true",
    }
    command = [sys.executable, "-m", "modnorm.services.sandbox.server"]
    with subprocess.Popen(command, env=environment) as process:
        yield target
        process.send_signal(signal.SIGTERM)


def client(folder, **changes):
    paths = {
        "tls_ca": folder / "tls_ca",
        "tls_cert": folder / "tls_client_cert",
        "tls_key": folder / "tls_client_key",
    }
    return Credentials(**{**paths, **changes})


def test_only_those_with_a_certificate_of_the_lab_get_an_answer(folder, target, tmp_path):
    wait_until(lambda: check(target, credentials=client(folder)) == "SERVING", "it serves")
    assert check(target, credentials=client(folder, tls_cert=None, tls_key=None)) == "UNAVAILABLE"
    subprocess.run([SCRIPT, tmp_path], check=True, capture_output=True)
    stranger = client(tmp_path, tls_ca=folder / "tls_ca")
    assert check(target, credentials=stranger) == "UNAVAILABLE"


def test_the_authority_stays_and_its_key_is_for_the_owner_alone(tmp_path):
    folder = tmp_path
    subprocess.run([SCRIPT, folder], check=True, capture_output=True)
    authority, certificate = (folder / name for name in ("tls_ca", "tls_cert"))
    before = authority.read_bytes(), certificate.read_bytes()
    subprocess.run([SCRIPT, folder, "other.example"], check=True, capture_output=True)
    assert authority.read_bytes() == before[0]
    assert certificate.read_bytes() != before[1]
    assert (folder / "tls_ca_key").stat().st_mode & 0o077 == 0


def test_certificates_are_for_the_names_given_and_the_sandbox_for_itself(folder):
    def names(file):
        command = ["openssl", "x509", "-in", folder / file, "-noout", "-ext", "subjectAltName"]
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout

    found = names("tls_cert")
    assert all(name in found for name in ("DNS:lab.example", "10.0.0.7", "DNS:aggregator"))
    assert "sandbox" not in found
    assert "aggregator" not in names("tls_sandbox_cert")


@pytest.mark.parametrize(("name", "told"), [("10.0.0", "bad ip address"), ("lab:50051", "port")])
def test_an_invalid_name_is_refused_and_changes_nothing(folder, name, told):
    before = {path: path.read_bytes() for path in folder.iterdir()}
    ran = subprocess.run([SCRIPT, folder, name], check=False, capture_output=True, text=True)
    assert ran.returncode == 1
    assert told in ran.stderr
    assert {path: path.read_bytes() for path in folder.iterdir()} == before
