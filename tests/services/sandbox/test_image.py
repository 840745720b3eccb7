"""The image installs what the sandbox imports, no torch, and does not run as root."""

import json
import subprocess
import sys
from importlib import metadata
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

SERVICE = Path(__file__).parents[3] / "services" / "sandbox"
IMPORT_WITHOUT = """
import json, sys
sys.modules.update(dict.fromkeys(json.loads(sys.argv[1])))
import services.sandbox.server, services.common.healthcheck
"""


def _closure(names):
    """Return the names of distributions with everything they need."""
    found, waiting = set(), list(names)
    while waiting:
        name = canonicalize_name(waiting.pop())
        if name in found:
            continue
        found.add(name)
        needs = map(Requirement, metadata.requires(name) or [])
        waiting += [
            need.name for need in needs if not need.marker or need.marker.evaluate({"extra": ""})
        ]
    return found


def test_the_requirements_cover_the_imports_without_torch():
    lines = (SERVICE / "requirements.txt").read_text().splitlines()
    installed = _closure(line for line in lines if not line.startswith("#"))
    assert not installed & {"torch", "transformers", "celery", "sqlmodel", "redis"}
    absent = [
        module
        for module, owners in metadata.packages_distributions().items()
        if not (installed | {"modnorm"}) & {canonicalize_name(owner) for owner in owners}
    ]
    assert "torch" in absent
    command = [sys.executable, "-c", IMPORT_WITHOUT, json.dumps(absent)]
    subprocess.run(command, check=True)


def test_the_image_does_not_run_as_root():
    last_stage = (SERVICE / "Dockerfile").read_text().rpartition("\nFROM ")[2]
    assert "\nUSER sandbox\n" in last_stage
