"""The commands and the Python of the pages, run as they stand on small experiments."""

import json
import re
import shlex
import shutil
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parents[2]
COMMAND = re.compile(r"^ {4,}(modnorm .*)$", re.MULTILINE)
PYTHON = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)
PAGES = (
    "README.md",
    "docs/tutorial.md",
    "docs/results.md",
    "docs/analysis.md",
    "docs/predict.md",
    "docs/concepts.md",
)
NOT_RUN = {
    r"modnorm (view|serve) ": "they serve until they are interrupted",
    r"modnorm (submit|watch) |\bID\b|--server": "they need a lab",
    r"modnorm (tune|match) ": "they run many searches; tests/cli and tests/radius run them",
}
"""Commands that are left out, and why."""


def shrunk(path):
    """Shorten the experiment of a spec; it has the N, K and held-out rows that pages name."""
    spec = yaml.safe_load(path.read_text())
    spec["population"] |= {"size": 12, "ensemble_sizes": [1, 4, 5, 10]}
    spec["task"] |= {"max_tokens": 4}
    spec["task"]["selection"]["limit"] = 2
    spec["task"]["heldout"]["limit"] = 18
    if "calibration" in spec:
        spec["calibration"] = {"examples": 2, "max_length": 16, "iterations": 1}
    return yaml.safe_dump(spec)


def commands(page):
    """Return the commands of a page in order, as lists of words without redirections."""
    text = re.sub(r"\\\n\s*", " ", (ROOT / page).read_text())
    found = [one for one in COMMAND.findall(text) if not any(re.search(w, one) for w in NOT_RUN)]
    words = [shlex.split(one, comments=True)[1:] for one in found]
    return [one[: one.index(">")] if ">" in one else one for one in words]


@pytest.fixture(scope="module")
def searches(modnorm, tmp_path_factory):
    """A folder with the short specs of the demo, and the run of each, by method."""
    folder = tmp_path_factory.mktemp("documentation")
    for name in ("modular-norm", "randopt"):
        spec = folder / f"demo-{name}.yaml"
        spec.write_text(shrunk(ROOT / "examples" / spec.name))
        modnorm("run", spec, "--out", folder / name)
        shutil.rmtree(folder / name / "state")
    return folder


@pytest.fixture
def place(searches, tmp_path, monkeypatch):
    """A working folder in which runs, specs and questions of all pages are."""
    monkeypatch.chdir(tmp_path)
    modular, isotropic = searches / "modular-norm", searches / "randopt"
    (tmp_path / "examples").mkdir()
    for spec in searches.glob("*.yaml"):
        shutil.copy(spec, tmp_path / "examples")
    for name in ("mine", "first", "spec", "small", "demo", "my-run", "mn-42"):
        shutil.copytree(modular, tmp_path / "runs" / name)
    for name in ("isotropic", "randopt-42"):
        shutil.copytree(isotropic, tmp_path / "runs" / name)
    for name in ("mn", "randopt"):
        other = shutil.copytree(tmp_path / "runs" / f"{name}-42", tmp_path / "runs" / f"{name}-43")
        document = json.loads((other / "results.json").read_text())
        document["spec"]["population"]["seed"] = 43
        (other / "results.json").write_text(json.dumps(document))
    shutil.copytree(modular, tmp_path / "runs" / "demo" / "modular_norm")
    shutil.copytree(isotropic, tmp_path / "runs" / "demo" / "randopt")
    for name in ("new", "questions"):
        (tmp_path / f"{name}.jsonl").write_text('{"numbers": [44, 19, 35], "target": 98}\n')
    return tmp_path


@pytest.mark.parametrize("page", PAGES)
def test_the_commands_of_a_page_run(place, modnorm, page):
    found = commands(page)
    assert found
    for words in found:
        modnorm(*words)
        if words[0] == "init":
            shutil.copy(place / "examples" / "demo-modular-norm.yaml", place / "spec.yaml")


@pytest.mark.parametrize(
    "page", ["docs/results.md", "docs/analysis.md", "docs/predict.md", "docs/python.md"]
)
def test_the_python_of_a_page_runs(place, page):
    blocks = [
        block for block in PYTHON.findall((ROOT / page).read_text()) if "Client(" not in block
    ]
    assert blocks
    for block in blocks:
        exec(compile(block, page, "exec"), {})
