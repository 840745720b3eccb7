"""Every command that talks to a lab ends alike where none answers."""

import json

import pytest
import yaml

GRID = ("--radii", "1,2", "--heldout", "bundled:countdown-development")
COMMANDS = {
    "submit": ("submit", "SPEC"),
    "show, written": ("show", "e1", "--out", "OUT"),
    "answers": ("answers", "e1"),
    "tune": ("tune", "SPEC", *GRID, "--out", "OUT"),
    "suite run": ("suite", "run", "SUITE", "--out", "OUT"),
}


@pytest.fixture
def files(tmp_path, spec):
    """Paths by the words of `COMMANDS`."""
    content = spec.model_dump(mode="json", exclude_defaults=True)
    (tmp_path / "spec.yaml").write_text(yaml.safe_dump(content))
    axes = {"radius": {"small": {"population": {"seed": 1}}, "large": {"population": {"seed": 2}}}}
    suite = {"name": "all", "title": "All", "base": content, "axes": axes, "seeds": [1]}
    (tmp_path / "suite.yaml").write_text(yaml.safe_dump(suite))
    names = {"SPEC": "spec.yaml", "SUITE": "suite.yaml", "OUT": "out"}
    return {word: str(tmp_path / name) for word, name in names.items()}


@pytest.mark.usefixtures("quick_retries")
@pytest.mark.parametrize("name", COMMANDS)
def test_a_lab_that_is_not_there_is_exit_code_1_with_its_address(
    modnorm, files, free_address, name
):
    words = [files.get(word, word) for word in COMMANDS[name]]
    code, out, err = modnorm(*words, "--server", free_address, "--json")
    error = json.loads(err.splitlines()[-1])
    assert (code, out, error["error"]) == (1, "", "UnreachableError")
    assert free_address in error["message"]
    assert error["remedy"]
