"""Help and refusals answer at once: what they import is looked at, not the time they take."""

import inspect
import json
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pkgutil import resolve_name

import pytest
import typer
import yaml

from modnorm.cli.commands import COMMANDS
from verification.labs.bundled_tasks import bundled_task

COMPUTING = {"celery", "matplotlib", "torch", "transformers"}
HEAVY = {
    "celery",
    "google.protobuf",
    "grpc",
    "httpx",
    "huggingface_hub",
    "matplotlib",
    "mpmath",
    "numpy",
    "pandas",
    "pyarrow",
    "rich",
    "scipy",
    "sqlalchemy",
    "torch",
    "transformers",
}
SCRIPT = """
import json, sys
from modnorm.cli import main
sys.argv = ["modnorm", *sys.argv[1:]]
try:
    main()
finally:
    print(json.dumps(sorted(sys.modules)), file=sys.stderr)
"""
TASK = bundled_task("countdown", selection=8, heldout=8)
SPEC = {
    "model": "tiny-thicket",
    "task": TASK,
    "method": {"name": "modular_norm", "radius": 0.64},
    "population": {"size": 4},
}
REFUSED = {
    "an unknown key": ("task", {**TASK, "tokens": 8}, "task.tokens"),
    "a wrong type": ("model", 7, "model"),
    "no model": ("model", "no-such-model", "model.name"),
    "no method": ("method", {"name": "none", "radius": 1}, "method.name"),
    "no radius": ("method", {"name": "randopt"}, "method.radius"),
    "no noise": ("population", {"size": 4, "noise": "none"}, "population.noise"),
    "no task": ("task", {**TASK, "name": "chess"}, "task.name"),
    "no rows": ("task", {**TASK, "selection": "no.jsonl"}, "task.selection.source"),
    "no profile": (
        "method",
        {"name": "modular_norm", "radius": 1, "profile": "no.json"},
        "method.profile",
    ),
    "few examples": ("calibration", {"examples": 1}, "calibration.examples"),
}
MALFORMED = ("an unknown key", "a wrong type", "no radius")
NAMING_WHAT_IS_NOT_THERE = ("no model", "no task", "no rows")


@pytest.fixture
def call(tmp_path):
    """Run the command line in a process; returns exit code, stderr and the modules it imported."""

    def call(*arguments):
        ended = subprocess.run(
            [sys.executable, "-c", SCRIPT, *map(str, arguments)],
            check=False,
            capture_output=True,
            text=True,
            cwd=tmp_path,
        )
        *err, modules = ended.stderr.splitlines()
        return ended.returncode, err, set(json.loads(modules))

    return call


@pytest.fixture
def write_spec(tmp_path):
    def write(case):
        section, content, _ = REFUSED[case]
        path = tmp_path / "spec.yaml"
        path.write_text(yaml.safe_dump({**SPEC, section: content}))
        return path

    return write


def test_the_package_and_its_public_names_are_light_until_they_are_used():
    script = "import json, modnorm, sys; dir(modnorm); print(json.dumps(sorted(sys.modules)))"
    ended = subprocess.run([sys.executable, "-c", script], check=True, capture_output=True)
    assert {*json.loads(ended.stdout)}.isdisjoint({*HEAVY, "pydantic"})


def test_the_help_of_all_commands_imports_nothing_heavy(call):
    code, _, modules = call("--help")
    assert code == 0
    assert modules.isdisjoint({*HEAVY, "pydantic"})


@pytest.mark.parametrize("command", [*((name,) for name in COMMANDS), ("suite", "run")])
def test_the_help_of_a_command_imports_nothing_heavy(call, command):
    # Typer itself loads pydantic to read options.
    code, _, modules = call(*command, "--help")
    assert code == 0
    assert modules.isdisjoint(HEAVY)


@pytest.mark.parametrize(("name", "command"), COMMANDS.items())
def test_the_line_of_a_command_is_the_first_of_its_own_help(name, command):
    found = resolve_name(command.place)
    own = found.info.help if isinstance(found, typer.Typer) else inspect.getdoc(found)
    assert isinstance(own, str)
    assert " ".join(own.split()).startswith(command.line)


@pytest.mark.parametrize("case", REFUSED)
def test_run_refuses_a_spec_with_light_imports_and_leaves_nothing(
    call, write_spec, tmp_path, case
):
    out = tmp_path / "out"
    code, err, modules = call("run", write_spec(case), "--out", out, "--json")
    assert code == 2
    assert json.loads(err[-1])["field"] == REFUSED[case][2]
    assert modules.isdisjoint(HEAVY)
    assert not out.exists()


@pytest.mark.parametrize("case", ["an unknown key", *NAMING_WHAT_IS_NOT_THERE])
@pytest.mark.parametrize(
    ("command", "options"),
    [
        ("tune", ("--radii", "1", "--heldout", "bundled:countdown-development")),
        ("match", ("--prompts", "8")),
    ],
)
def test_tune_and_match_refuse_a_spec_as_run_does(
    call, write_spec, tmp_path, command, options, case
):
    out = tmp_path / "out"
    code, err, modules = call(command, write_spec(case), *options, "--out", out, "--json")
    assert code == 2
    assert json.loads(err[-1])["field"] == REFUSED[case][2]
    assert modules.isdisjoint(HEAVY - {"google.protobuf"})
    assert not out.exists()


@pytest.mark.parametrize("case", ["an unknown key", *NAMING_WHAT_IS_NOT_THERE])
def test_a_suite_of_which_no_cell_can_run_is_refused(call, write_spec, tmp_path, case):
    suite, out = tmp_path / "suite.yaml", tmp_path / "out"
    base = yaml.safe_load(write_spec(case).read_text())
    axes = {"radius": {"small": {"population": {"seed": 1}}, "large": {"population": {"seed": 2}}}}
    content = {"name": "all", "title": "All", "base": base, "axes": axes, "seeds": [1]}
    suite.write_text(yaml.safe_dump(content))
    code, err, modules = call("suite", "run", suite, "--out", out, "--json")
    assert code == 2
    assert REFUSED[case][2] in json.loads(err[-1])["field"] + json.loads(err[-1])["message"]
    assert modules.isdisjoint(HEAVY)
    assert not out.exists()


@pytest.mark.parametrize("case", MALFORMED)
def test_submit_refuses_a_malformed_spec_before_it_looks_for_a_lab(call, write_spec, case):
    code, err, modules = call("submit", write_spec(case), "--json")
    assert code == 2
    assert json.loads(err[-1])["field"] == REFUSED[case][2]
    assert modules.isdisjoint(HEAVY)


def test_of_several_specs_a_refused_one_is_told_before_the_others_run(call, write_spec, tmp_path):
    bad = write_spec("no task").rename(tmp_path / "bad.yaml")
    worse = write_spec("no model").rename(tmp_path / "worse.yaml")
    code, err, modules = call("run", bad, worse, "--out", tmp_path / "out", "--json")
    assert code == 2
    assert json.loads(err[-1])["field"] == "task.name"
    assert modules.isdisjoint(HEAVY)
    assert not (tmp_path / "out").exists()


def test_a_command_of_a_lab_imports_nothing_that_computes(call):
    server = ("--server", "127.0.0.1:1", "--json")
    commands = [("list", *server), ("show", "e1", *server), ("cancel", "e1", *server)]
    with ThreadPoolExecutor() as threads:  # each waits seconds for its retries
        for code, err, modules in threads.map(lambda words: call(*words), commands):
            assert code == 1
            assert json.loads(err[-1])["error"] == "UnreachableError"
            assert modules.isdisjoint(COMPUTING)


def test_a_sound_spec_is_validated_with_light_imports(call, tmp_path):
    code, _, _ = call("init", "spec.yaml")
    assert code == 0
    code, _, modules = call("validate", "spec.yaml")
    assert code == 0
    assert modules.isdisjoint(HEAVY)
