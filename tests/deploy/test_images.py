"""Images install all that their services import, and no image runs as root."""

import json
import re
import subprocess
import sys
from importlib import metadata
from pathlib import Path
from pkgutil import walk_packages

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

import modnorm.services.aggregator
import modnorm.services.sandbox


def modules_of(package):
    """Return the names of a package's modules, but those that do their work when imported."""
    names = (found.name for found in walk_packages(package.__path__, f"{package.__name__}."))
    return tuple(name for name in names if ".migrations" not in name)


ROOT = Path(__file__).parents[2]
DOCKERFILE = (ROOT / "Dockerfile").read_text()
IMPORT_WITHOUT = """
import importlib, json, sys
from importlib.abc import MetaPathFinder

absent, wanted = map(set, json.loads(sys.argv[1]))

class Absent(MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in absent:
            raise ModuleNotFoundError(f"{name} is not in the image", name=name)

sys.meta_path.insert(0, Absent())
for module in sorted(wanted):
    importlib.import_module(module)
"""
TARGETS = (*("aggregator", "calibrator", "sampler", "evaluator", "sandbox"), "evaluator-gpu")
EVERY = ("modnorm.services.common.healthcheck",)
MODULES = {
    "aggregator": (
        # The page, which the server imports once it is asked for one, among them.
        *modules_of(modnorm.services.aggregator),
        "modnorm.services.common.telemetry",
        "psycopg",
        "redis",
    ),
    "sandbox": modules_of(modnorm.services.sandbox),
}
"""Imports of images that install only a part of the requirements."""


def closure(requirements):
    """Return the names of distributions with all their dependencies."""
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


def script(*arguments):
    command = [sys.executable, "scripts/requirements.py", *arguments]
    return subprocess.run(command, check=True, capture_output=True, text=True, cwd=ROOT).stdout


def requirements(image):
    """Return the lines that an image installs."""
    lines = (ROOT / "services" / image / "requirements.txt").read_text().splitlines()
    return [line for line in lines if not line.startswith("#")]


@pytest.mark.parametrize("image", MODULES)
def test_the_requirements_cover_the_imports(image):
    installed = closure(requirements(image)) | {"modnorm"}
    absent = [
        module
        for module, owners in metadata.packages_distributions().items()
        if not installed & {canonicalize_name(owner) for owner in owners}
    ]
    assert "pytest" in absent
    wanted = [*MODULES[image], *EVERY]
    subprocess.run(
        [sys.executable, "-c", IMPORT_WITHOUT, json.dumps([absent, wanted])], check=True
    )


@pytest.mark.parametrize(
    ("image", "unneeded"),
    [
        ("aggregator", {"torch", "transformers"}),
        ("sandbox", {"torch", "transformers", "celery", "sqlmodel", "redis"}),
    ],
)
def test_images_without_torch_stay_without_it(image, unneeded):
    assert not closure(requirements(image)) & unneeded


def test_what_an_image_brings_keeps_its_version(tmp_path):
    present = tmp_path / "present.txt"
    present.write_text("torch==2.11.0\ngrpcio==1.80.0\n")
    constraints = tmp_path / "constraints.txt"
    constraints.write_text("torch==2.13.0\nceLery==5.5.1\ngrpcio-status==1.78.0\n")
    lines = script("--constraints", str(constraints), "--present", str(present)).splitlines()
    assert "celery>=5.5,<6,==5.5.1" in lines
    assert "torch>=2.10" in lines
    assert "grpcio-status>=1.78,<2" in lines


def stages():
    """Return each stage's base and text by name."""
    found = {}
    for text in re.split(r"(?m)^FROM ", DOCKERFILE)[1:]:
        base, _, name = text.partition("\n")[0].partition(" AS ")
        found[name] = (base, text)
    return found


@pytest.mark.parametrize("target", TARGETS)
def test_no_image_runs_as_root(target):
    name, texts = target, ""
    while name in stages():
        name, text = stages()[name]
        texts = text + texts
    users = re.findall(r"(?m)^USER (\S+)", texts)
    # The sandbox's limit of processes counts those of all containers with its account's number.
    assert users[-1] == ("sandbox" if target == "sandbox" else "modnorm")
    assert "latest" not in name
