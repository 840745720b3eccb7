"""The image installs what the aggregator imports, and no torch."""

import json
import subprocess
import sys
from importlib import metadata
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

REQUIREMENTS = Path(__file__).parents[3] / "services" / "aggregator" / "requirements.txt"
IMPORT_WITHOUT = """
import json, sys
from importlib.abc import MetaPathFinder

absent = set(json.loads(sys.argv[1]))

class Absent(MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in absent:
            raise ModuleNotFoundError(f"{name} is not in the image", name=name)

sys.meta_path.insert(0, Absent())
import services.aggregator.server, services.common.healthcheck
import psycopg, redis
"""


def closure(requirements):
    """Return the names of distributions with everything they need."""
    found, waiting = set(), [Requirement(text) for text in requirements]
    while waiting:
        requirement = waiting.pop()
        name = canonicalize_name(requirement.name)
        if name in found:
            continue
        found.add(name)
        needs = map(Requirement, metadata.requires(name) or [])
        waiting += [need for need in needs if applies(need, requirement.extras)]
    return found


def applies(need, extras):
    return need.marker is None or any(
        need.marker.evaluate({"extra": extra}) for extra in (*extras, "")
    )


def test_the_requirements_cover_the_imports_without_torch():
    lines = REQUIREMENTS.read_text().splitlines()
    installed = closure(line for line in lines if line and not line.startswith("#"))
    assert not installed & {"torch", "transformers"}
    kept = installed | {"modnorm"}
    absent = [
        module
        for module, owners in metadata.packages_distributions().items()
        if not kept & {canonicalize_name(owner) for owner in owners}
    ]
    assert "torch" in absent
    subprocess.run([sys.executable, "-c", IMPORT_WITHOUT, json.dumps(absent)], check=True)
