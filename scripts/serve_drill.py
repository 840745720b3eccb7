"""A part of the deployment drill: the killed server of a run."""

import json
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path

from openai import OpenAI

from modnorm.analysis.run import load_run
from modnorm.client.rundir import RunDirectory
from modnorm.spec import ExperimentSpec
from scripts.compose_lab import UNDISTURBED, ComposeLab, free_address, require, say

ASKED = 6
"""Held-out rows that a server is asked."""


def survive_a_killed_server(lab: ComposeLab, expected: Mapping[str, bytes]) -> None:
    """Serve the undisturbed run and kill the server: it votes as the run did, before and after."""
    rows = [json.loads(line) for line in expected["rows/heldout.jsonl"].splitlines()][:ASKED]
    run = _run_directory(lab)
    votes = [vote.answer for vote in load_run(run).ensembles[-1].votes][:ASKED]
    lab = lab.under(
        {
            "COMPOSE_PROFILES": "serve",
            "MODNORM_SERVE_RUN": str(run),
            "MODNORM_SERVE_PUBLISH": free_address(),
        }
    )
    lab.start("up --wait serve, alone", "serve")
    require(_asked(lab, rows) == votes, "the server votes otherwise than the run")
    lab.kill("serve", "between requests")
    require(_asked(lab, rows) == votes, "the server votes otherwise after it was killed")
    say(f"serve: {len(votes)} votes of the run, before and after kill -9")
    lab.compose("down", "--volumes")


def _run_directory(lab: ComposeLab) -> Path:
    """Return the undisturbed run as a run directory, which names its spec."""
    folder = lab.folder / "served"
    shutil.copytree(lab.runs / UNDISTURBED, folder)
    results = json.loads((folder / "results.json").read_text(encoding="utf-8"))
    RunDirectory(folder).claim(ExperimentSpec.model_validate(results["spec"]))
    return folder


def _asked(lab: ComposeLab, rows: Sequence[Mapping[str, object]]) -> Sequence[str | None]:
    """Return the server's votes on rows, from outside, by the official client."""
    address = f"http://{lab.settings['MODNORM_SERVE_PUBLISH']}/v1"
    key = (lab.folder / "secrets/serve_keys").read_text(encoding="utf-8").strip()
    client = OpenAI(base_url=address, api_key=key, max_retries=5)
    answers = (
        client.chat.completions.create(model="ensemble", messages=[], extra_body={"row": row})
        for row in rows
    )
    return [(answer.model_extra or {})["modnorm"]["answer"] for answer in answers]
