"""The page of a directory that `modnorm run` works on, read until the run has ended."""

import re

import yaml

from modnorm.client.embedded import read_unfinished
from modnorm.web.app import build_app
from modnorm.web.run_directories import DirectoryCatalog
from tests.web.conftest import SPEC
from verification.labs.waiting import wait_until


def test_a_local_run_is_watched_to_its_end(start_modnorm, tmp_path, send):
    spec, home = tmp_path / "spec.yaml", tmp_path / "live"
    spec.write_text(yaml.safe_dump({**SPEC, "reuse": False}))
    states: list[str] = []

    def has_ended():
        page = send(app, "GET", "/runs/live").text
        states.extend(re.findall('<p class="lead">(selecting|voting|interrupted)', page))
        return "<figure>" in page

    run = start_modnorm("run", spec, "--out", home, "--quiet")
    wait_until((home / "spec.json").exists, "the run is accepted")
    app = build_app(DirectoryCatalog([home], read_unfinished))
    wait_until(has_ended, "the page shows the results", pause=0.1)
    assert run.finish().returncode == 0
    assert list(dict.fromkeys(states)) == ["selecting", "voting"]
