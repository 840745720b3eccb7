import re
import struct
from dataclasses import replace
from itertools import pairwise
from xml.etree import ElementTree as ET

import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from modnorm.analysis import plots
from modnorm.analysis.document import EnsembleEntry, results_document
from modnorm.analysis.plots import follow_theme
from tests.analysis.run_plots import draw_run

SVG = "{http://www.w3.org/2000/svg}"


def png_size(image: bytes) -> tuple[int, int]:
    assert image[:8] == b"\x89PNG\r\n\x1a\n"
    width, height = struct.unpack(">II", image[16:24])
    return width, height


@pytest.mark.parametrize(
    "shape",
    [
        {},
        {"prefixes": (25, 50, 100, 200, 300), "sizes": (1, 5, 10, 25)},
        {"prefixes": (20,), "failed": frozenset({0, 3})},
        {"prefixes": (1,), "sizes": (1,)},
    ],
)
def test_every_shape_of_run_is_drawn(make_run, shape):
    run = make_run(**shape)
    plots = draw_run(run)
    assert ("accuracy-by-population" in plots) == (len(run.prefixes) > 1)
    assert {"accuracy-by-ensemble-size", "reward-histogram", "vote-support"} <= set(plots)
    assert {png_size(image) for image in plots.values()} == {(1024, 608)}


@pytest.mark.parametrize(
    ("prefixes", "sizes"),
    [((25, 50, 100), tuple(range(1, 26))), (tuple(range(10, 310, 10)), (1, 10))],
)
def test_many_sizes_have_a_legend_and_labels_with_room(make_run, prefixes, sizes):
    run = make_run(prefixes=prefixes, sizes=sizes)
    data = plots.plot_data(run, results_document(run))
    for draw in (plots._by_population, plots._by_ensemble_size):
        figure = Figure((6.4, 3.8), layout="constrained")
        canvas = FigureCanvasAgg(figure)
        axes = figure.add_subplot()
        draw(axes, data)
        canvas.draw()
        legend = axes.get_legend()
        assert legend is not None
        assert legend.get_window_extent().height < figure.bbox.height
        assert legend.get_texts()[-2].get_text().endswith(("= 25", "= 300", "= 100", "= 10"))
        boxes = [label.get_window_extent() for label in axes.get_xticklabels()]
        assert len(boxes) > 1
        assert all(one.x1 < other.x0 for one, other in pairwise(boxes))


@pytest.mark.parametrize("rewards", [(15000.0, 15000.000000000002), (1e17, 1e17), (0.5, 0.5)])
def test_rewards_that_differ_by_a_rounding_are_drawn(make_run, rewards):
    run = make_run(prefixes=(2,), sizes=(1,))
    found = zip(run.candidates, rewards, strict=True)
    close = [replace(candidate, selection_reward=reward) for candidate, reward in found]
    assert "reward-histogram" in draw_run(replace(run, candidates=close))


def test_plots_depend_on_the_data_alone(make_run):
    assert draw_run(make_run(worker="one")) == draw_run(make_run(worker="two"))
    assert draw_run(make_run()) != draw_run(make_run(failed=frozenset({40})))


@pytest.mark.parametrize("highest", [0.004, 0.113, 1.0])
def test_labels_of_percent_say_where_their_ticks_are(make_run, highest):
    figure = Figure()
    canvas = FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    run = make_run()
    data = plots.plot_data(run, results_document(run))
    entry = data.ensembles[0]
    points: list[tuple[int, EnsembleEntry]] = [
        (1, {**entry, "metric": 0.0, "interval": None}),
        (2, {**entry, "metric": highest, "interval": None}),
    ]
    plots._accuracy(axes, data, {"K = 1": points})
    axes.lines[-1].remove()  # the base, which would widen the axis
    axes.relim()
    canvas.draw()
    labels = [label.get_text().removesuffix("%") for label in axes.get_yticklabels()]
    assert [float(label) for label in labels] == pytest.approx(list(100 * axes.get_yticks()))
    assert len(set(labels)) == len(labels)


@pytest.mark.parametrize("name", ["accuracy-by-ensemble-size", "vote-support"])
def test_a_plot_follows_the_theme_of_the_reader(make_run, name):
    run = make_run()
    data = plots.plot_data(run, results_document(run))
    drawn = plots.draw_plot(name, data, "svg")
    style = ET.fromstring(follow_theme(drawn)).findtext(f"{SVG}style", "")
    assert "prefers-color-scheme: dark" in style
    for colour in re.findall(r"(?:fill|stroke): (#\w{6})\"", style):
        assert f": {colour}".encode() in drawn
