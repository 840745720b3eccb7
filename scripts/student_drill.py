"""Parts of the deployment drill: a trainer killed in a training, and a killed server of a run."""

import json
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path

from openai import OpenAI

from modnorm.client.client import Client
from modnorm.client.rundir import RunDirectory
from modnorm.spec import ExperimentSpec
from modnorm.tasks.puzzles import BUNDLED
from modnorm.tasks.puzzles import main as write_puzzles
from modnorm.wire.connection import Credentials
from scripts.compose_lab import UNDISTURBED, ComposeLab, free_address, require, say

TRAINED = {"method": "lora", "rank": 8, "batch_size": 4, "epochs": 60, "checkpoint_steps": 10}
"""Some hundred steps: time to be killed in."""
KILL_AT_STEP = 20
ASKED = 6
"""Held-out rows that a server is asked."""
SPEC = ExperimentSpec.model_validate(
    {
        "name": "student drill",
        "model": {"name": "tiny-thicket"},
        "task": {
            "name": "countdown",
            "selection": {"source": "bundled:countdown-selection", "limit": 12},
            "heldout": {"source": "bundled:countdown-heldout", "limit": 16},
            "max_tokens": 96,
        },
        "method": {"name": "randopt", "sigma": 0.006},
        "population": {"size": 4, "ensemble_sizes": [1, 2]},
        "distillation": {
            "rounds": 1,
            "rows": {"source": "/data/training.jsonl"},
            "development": {"source": "bundled:countdown-development", "limit": 12},
            "harvest": {"samples": 2, "keep": 2},
            "training": TRAINED,
        },
    }
)


def survive_a_killed_trainer(lab: ComposeLab, expected: Mapping[str, bytes]) -> None:
    """Distil twice, once with a trainer that is killed in its training: equal students."""
    del expected  # another spec
    data = lab.folder / "data"
    data.mkdir(exist_ok=True)
    out = str(data / "training.jsonl")
    write_puzzles([out, "--seed", "7", "--count", "24", "--exclude", BUNDLED])
    lab = lab.under({"COMPOSE_PROFILES": "trainer", "MODNORM_DATA": str(data)})
    students: list[object] = []
    for name in ("trained undisturbed", "trained by a killed trainer"):
        lab.start("up --wait with a trainer, new volumes")
        experiment_id = lab.submit(SPEC, name)
        if students:
            _wait_for_step(lab, experiment_id)
            lab.kill("trainer", "in a training")
        lab.finish(experiment_id, name)
        students.append(_student(lab, experiment_id, name))
        lab.compose("down", "--volumes")
    require(students[0] == students[1], f"the students differ: {students}")
    say(f"equal students: {students[0]}")


def _wait_for_step(lab: ComposeLab, experiment_id: str) -> None:
    """Wait until a training has written a checkpoint."""
    with Client(lab.target, credentials=Credentials(token_file=lab.token_file)) as client:
        for event in client.watch(experiment_id):
            require(not event.state.is_final, "the distillation ended before its training")
            words = event.message.partition("training step ")[2]
            if words and int(words.split()[0]) >= KILL_AT_STEP:
                say(event.message)
                return
    raise SystemExit("no training step was reported")


def _student(lab: ComposeLab, experiment_id: str, name: str) -> Sequence[object]:
    """Return the best round's student of a distillation and its figures."""
    with Client(lab.target, credentials=Credentials(token_file=lab.token_file)) as client:
        (best,) = (each for each in client.get(experiment_id).rounds if each.is_best)
    say(f"{name}: {best.student[:12]}, held out {best.heldout_metric}")
    return best.student, best.development_metric, best.heldout_metric


def survive_a_killed_server(lab: ComposeLab, expected: Mapping[str, bytes]) -> None:
    """Serve the undisturbed run and kill the server: it votes as the run did, before and after."""
    rows = [json.loads(line) for line in expected["rows/heldout.jsonl"].splitlines()][:ASKED]
    votes = _votes(expected)[:ASKED]
    lab = lab.under(
        {
            "COMPOSE_PROFILES": "serve",
            "MODNORM_SERVE_RUN": str(_run_directory(lab)),
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


def _votes(files: Mapping[str, bytes]) -> Sequence[str | None]:
    """Return the votes of a run's largest ensemble, by row."""
    votes = [json.loads(line) for line in files["votes.jsonl"].splitlines()]
    largest = max((vote["population"], vote["ensemble_size"]) for vote in votes)
    return [
        vote["answer"]
        for vote in sorted(votes, key=lambda vote: int(vote["row"]))
        if (vote["population"], vote["ensemble_size"]) == largest
    ]


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
