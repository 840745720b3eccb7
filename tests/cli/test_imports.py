"""Help and refusals answer at once: what they import is looked at, not the time they take."""

import inspect
import json
import subprocess
import sys
from pkgutil import resolve_name

import pytest
import yaml

from modnorm.cli.commands import COMMANDS
from verification.labs.bundled_tasks import bundled_task

COMPUTING = {"celery", "matplotlib", "torch", "transformers"}
HEAVY = COMPUTING | {
    *("google.protobuf", "grpc", "httpx", "huggingface_hub", "mpmath", "numpy", "pandas"),
    *("pyarrow", "rich", "scipy", "sqlalchemy"),
}
SCRIPT = """
import contextlib, io, json, sys
from modnorm.cli import main
ended = []
for words in json.loads(sys.argv[1]):
    sys.argv = ["modnorm", *words]
    err = io.StringIO()
    try:
        with contextlib.redirect_stderr(err), contextlib.redirect_stdout(io.StringIO()):
            main()
    except SystemExit as end:
        ended.append((end.code, err.getvalue()))
print(json.dumps([ended, sorted(sys.modules)]))
"""
TASK = bundled_task("countdown", selection=8, heldout=8)
SPEC = {
    "model": "tiny-thicket",
    "task": TASK,
    "method": {"name": "modular_norm", "radius": 0.64},
    "population": {"size": 4},
}
MALFORMED = {
    "unknown-key": ("task", {**TASK, "tokens": 8}, "task.tokens"),
    "wrong-type": ("model", 7, "model"),
    "no-radius": ("method", {"name": "randopt"}, "method.radius"),
}
ABSENT = {
    "no-model": ("model", "no-such-model", "model.name"),
    "no-task": ("task", {**TASK, "name": "chess"}, "task.name"),
    "no-rows": ("task", {**TASK, "selection": "no.jsonl"}, "task.selection.source"),
}
REFUSED = {
    **MALFORMED,
    **ABSENT,
    "no-method": ("method", {"name": "none", "radius": 1}, "method.name"),
    "no-noise": ("population", {"size": 4, "noise": "none"}, "population.noise"),
    "no-profile": (
        "method",
        {"name": "modular_norm", "radius": 1, "profile": "no.json"},
        "method.profile",
    ),
    "few-examples": ("calibration", {"examples": 1}, "calibration.examples"),
}


@pytest.fixture
def call(tmp_path):
    """Run command lines in a new process; returns exit codes and errors, and its modules."""

    def call(*lines):
        words = json.dumps([[str(word) for word in line] for line in lines])
        ended = subprocess.run(
            [sys.executable, "-c", SCRIPT, words], check=True, capture_output=True, cwd=tmp_path
        )
        results, modules = json.loads(ended.stdout)
        return results, set(modules)

    return call


@pytest.fixture
def specs(tmp_path):
    """Write the refused specs, and a suite of two cells of each; returns files by case."""
    axes = {"radius": {"small": {"population": {"seed": 1}}, "large": {"population": {"seed": 2}}}}
    for case, (section, content, _) in REFUSED.items():
        base = {**SPEC, section: content}
        suite = {"name": "all", "title": "All", "base": base, "axes": axes, "seeds": [1]}
        (tmp_path / f"{case}.yaml").write_text(yaml.safe_dump(base))
        (tmp_path / f"suite-{case}.yaml").write_text(yaml.safe_dump(suite))
    return {case: tmp_path / f"{case}.yaml" for case in REFUSED}


def check(ended, cases):
    for (code, err), case in zip(ended, cases, strict=True):
        error = json.loads(err.splitlines()[-1])
        assert code == 2, case
        assert REFUSED[case][2] in f"{error['field']} {error['message']}", case


def test_the_package_and_its_public_names_are_light_until_they_are_used():
    script = "import json, modnorm, sys; dir(modnorm); print(json.dumps(sorted(sys.modules)))"
    ended = subprocess.run([sys.executable, "-c", script], check=True, capture_output=True)
    assert {*json.loads(ended.stdout)}.isdisjoint({*HEAVY, "pydantic"})


def test_the_help_of_all_commands_imports_nothing_heavy(call):
    ended, modules = call(["--help"])
    assert ended == [[0, ""]]
    assert not modules & ({*HEAVY, "pydantic", "importlib.metadata", "urllib.request"})


def test_the_help_of_a_command_imports_nothing_heavy(call):
    # Typer itself loads pydantic to read options.
    ended, modules = call(*([name, "--help"] for name in COMMANDS), ["suite", "run", "--help"])
    assert {code for code, _ in ended} == {0}
    assert not modules & HEAVY


@pytest.mark.parametrize(("name", "command"), COMMANDS.items())
def test_the_line_of_a_command_is_the_first_of_its_own_help(name, command):
    if not isinstance(found := resolve_name(command.place), dict):
        assert " ".join(str(inspect.getdoc(found)).split()).startswith(command.line), name


def test_run_refuses_specs_with_light_imports_and_leaves_nothing(call, specs, tmp_path):
    out = ("--out", tmp_path / "out", "--json")
    several = ["run", specs["no-task"], specs["no-model"], *out]
    ended, modules = call(*(["run", file, *out] for file in specs.values()), several)
    check(ended, [*specs, "no-task"])
    assert not modules & HEAVY
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("command", "options"),
    [
        (["tune"], ("--radii", "1", "--heldout", "bundled:countdown-development")),
        (["match"], ("--prompts", "8")),
        (["suite", "run"], ()),
    ],
)
def test_other_commands_refuse_a_spec_as_run_does(call, specs, tmp_path, command, options):
    cases = ["unknown-key", *ABSENT]
    prefix = "suite-" if "suite" in command else ""
    files = [tmp_path / f"{prefix}{case}.yaml" for case in cases]
    out = (*options, "--out", tmp_path / "out", "--json")
    ended, modules = call(*([*command, file, *out] for file in files))
    check(ended, cases)
    assert not modules & (HEAVY - {"google.protobuf"})
    assert not (tmp_path / "out").exists()
