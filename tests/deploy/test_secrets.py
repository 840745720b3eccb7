"""Secrets of the script: created once, and renewed if a file is missing."""

import subprocess
from datetime import UTC, datetime
from pathlib import Path

from modnorm.wire.tokens import Role, read_tokens, revoke_token

SCRIPT = Path(__file__).parents[2] / "scripts/make-secrets"
TOKENS = {
    "aggregator_token": {Role.INTERNAL},
    "worker_token": {Role.WORKER},
    "user_token": {Role.SUBMIT, Role.READ},
    "operator_token": {Role.OPERATE},
}


def made(folder):
    """Run the script; return the content of every file."""
    subprocess.run([SCRIPT, folder], check=True, capture_output=True)
    return {path.name: path.read_text() for path in folder.rglob("*") if path.is_file()}


def accepted(folder, text):
    table = read_tokens(folder / "accepted/tokens.yaml")
    return table.check(text, datetime.now(UTC))


def test_what_is_there_stays(tmp_path):
    before = made(tmp_path / "s")
    assert {name: set(accepted(tmp_path / "s", before[name]).roles) for name in TOKENS} == TOKENS
    assert made(tmp_path / "s") == before


def test_a_revoked_token_is_replaced_under_another_name(tmp_path):
    folder = tmp_path / "s"
    old = made(folder)["worker_token"]
    for number in (2, 3):
        (folder / "worker_token").unlink()
        new = accepted(folder, made(folder)["worker_token"])
        assert (new.name, set(new.roles)) == (f"worker-{number}", {Role.WORKER})
    assert accepted(folder, old).name == "worker"
    revoke_token(folder / "accepted/tokens.yaml", "worker")
    (folder / "worker_token").unlink()
    assert accepted(folder, made(folder)["worker_token"]).name == "worker-4"
