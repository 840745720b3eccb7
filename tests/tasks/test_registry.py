import pytest

from modnorm.errors import InvalidInputError
from modnorm.tasks.registry import ENTRY_POINTS, get_task, scorer_names, task_names
from tests.faults import error_at

CAPS = {
    "countdown": 1024,
    "gsm8k": 1024,
    "math500": 2048,
    "mbpp": 2048,
    "olympiadbench": 2048,
    "rocstories": 64,
    "uspto50k": 64,
}
VERSIONS = {"countdown": 2, "gsm8k": 3, "math500": 3, "olympiadbench": 3, "uspto50k": 2}
"""Default scorers that judged some answers otherwise in an earlier version."""


@pytest.mark.parametrize("name", CAPS)
def test_every_task_has_the_papers_cap_and_two_scorers_by_name_and_version(make_task, name):
    task, published = make_task(name), make_task(name, "reference")
    assert task.name == published.name == name
    assert task.max_tokens == published.max_tokens == CAPS[name]
    assert (task.scorer, published.scorer) == scorer_names(name)
    version = VERSIONS.get(name, 1)
    assert scorer_names(name) == (f"{name}-v{version}", f"{name}-reference-v1")
    assert make_task(name, f"{name}-v{version}").scorer == f"{name}-v{version}"
    assert make_task(name, f"{name}-reference-v1").scorer == f"{name}-reference-v1"


@pytest.fixture
def install(tmp_path, monkeypatch):
    """Install a distribution with one entry point of a task."""

    def install(name, body):
        (tmp_path / "plugin_of_tests.py").write_text(body)
        info = tmp_path / "plugin_of_tests-1.0.dist-info"
        info.mkdir()
        (info / "METADATA").write_text("Name: plugin-of-tests\nVersion: 1.0\n")
        (info / "entry_points.txt").write_text(
            f"[{ENTRY_POINTS}]\n{name} = plugin_of_tests:make\n"
        )
        monkeypatch.syspath_prepend(tmp_path)
        monkeypatch.delitem(__import__("sys").modules, "plugin_of_tests", raising=False)

    return install


def test_a_task_of_another_package_is_found_by_its_entry_point(install):
    install(
        "sums",
        "from modnorm.tasks.gsm8k import Gsm8k\n"
        "class make(Gsm8k):\n    name = 'sums'\n    scorer = 'sums-v1'\n",
    )
    assert "sums" in task_names()
    assert get_task("sums").scorer == "sums-v1"
    assert scorer_names("sums") == ("sums-v1",)
    with pytest.raises(InvalidInputError, match="no scorer"):
        get_task("sums", scorer="reference")


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("def make():\n    raise OSError('no disk')\n", "no disk"),
        ("def make():\n    raise SystemExit('no licence')\n", "no licence"),
        ("from modnorm.tasks.gsm8k import Gsm8k as make\n", "another name, 'gsm8k'"),
        ("", "cannot be created: AttributeError: "),
        ("class make:\n    name, scorer, max_tokens = 'sums', 'sums-v1', 5\n", "lacks parse"),
        (
            "from modnorm.tasks.gsm8k import Gsm8k as G\nclass make(G): max_tokens = ''\n",
            "lacks max_tokens, or has it with a wrong type",
        ),
    ],
)
def test_a_broken_task_of_another_package_is_refused_by_its_name(install, body, message):
    install("sums", body)
    with error_at("task.name", message):
        get_task("sums")
