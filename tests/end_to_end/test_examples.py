"""The examples of the SDK, run on a small experiment of the bundled model."""

import json
import runpy
import shutil
from pathlib import Path

import pytest
from matplotlib import pyplot as plt
from matplotlib.figure import Figure

from modnorm import load_run
from modnorm.client.embedded import find_embedded

EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.fixture
def start():
    """Call the main function of an example."""
    return lambda name, *words: runpy.run_path(str(EXAMPLES / name))["main"](*map(str, words))


def test_the_votes_on_a_question_are_printed(start, finished, capsys):
    start("question_votes.py", finished, 3)
    out = capsys.readouterr().out
    assert "gold:" in out
    assert out.count(" voted ") == 2


def test_a_run_compared_with_its_copy_differs_in_nothing(start, finished, tmp_path, capsys):
    twin = shutil.copytree(finished, tmp_path / "twin")
    start("compare_runs.py", finished, twin)
    assert "differs in: nothing" in capsys.readouterr().out


def test_scaling_is_plotted(start, finished, tmp_path):
    start("plot_scaling.py", finished, tmp_path / "scaling.svg")
    assert (tmp_path / "scaling.svg").read_text().count("LineCollection") == 4  # K and legend


def test_the_notebook_ends_in_a_figure(finished):
    cells = json.loads((EXAMPLES / "run_figure.ipynb").read_text())["cells"]
    assert len(cells) == 5
    sources = ["".join(cell["source"]) for cell in cells]
    names: dict[str, object] = {}
    for source in sources:
        exec(source.replace("../runs/demo/modular_norm", str(finished)), names)
    votes = eval(sources[3].splitlines()[-1], names)
    assert list(votes["row"]) == list(range(5))
    figure = names["figure"]
    assert isinstance(figure, Figure)
    assert plt.gcf() is figure  # a notebook shows the figures of pyplot
    plt.close()
    (axes,) = figure.axes
    assert len(axes.containers) == 1


def test_a_lab_runs_a_spec_and_gives_its_results(
    start, write_spec, finished, cache_dir, tmp_path, monkeypatch, capsys
):
    with find_embedded()(tmp_path / "state", cache=cache_dir) as lab:
        monkeypatch.setattr(
            "modnorm.client.connection.ConnectionSettings", lambda: lab.credentials
        )
        start("submit_and_watch.py", lab.target, write_spec("small"), tmp_path / "out")
    assert "succeeded" in capsys.readouterr().out
    made, expected = load_run(tmp_path / "out"), load_run(finished)
    assert made.to_pandas().equals(expected.to_pandas())
    assert list(made.answers(candidate=0)) == list(expected.answers(candidate=0))
    assert list(made.votes()) == list(expected.votes())
