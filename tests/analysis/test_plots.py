import re
import struct
from dataclasses import replace
from functools import partial
from xml.etree import ElementTree as ET

import numpy as np
import pandas as pd
import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from modnorm.analysis import plots
from modnorm.analysis.document import results_document
from modnorm.analysis.figures import draw_bands, draw_bars
from modnorm.analysis.plots import draw_panels, follow_theme
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


@pytest.mark.parametrize("rewards", [(15000.0, 15000.000000000002), (1e17, 1e17), (0.5, 0.5)])
def test_rewards_that_differ_by_a_rounding_are_drawn(make_run, rewards):
    run = make_run(prefixes=(2,), sizes=(1,))
    found = zip(run.candidates, rewards, strict=True)
    close = [replace(candidate, selection_reward=reward) for candidate, reward in found]
    assert "reward-histogram" in draw_run(replace(run, candidates=close))


@pytest.mark.parametrize("name", ["accuracy-by-ensemble-size", "vote-support"])
def test_a_plot_follows_the_theme_of_the_reader(make_run, name):
    run = make_run()
    data = plots.plot_data(run, results_document(run))
    drawn = plots.draw_plot(name, data, "svg")
    style = ET.fromstring(follow_theme(drawn)).findtext(f"{SVG}style", "")
    assert "prefers-color-scheme: dark" in style
    for colour in re.findall(r"(?:fill|stroke): (#\w{6})\"", style):
        assert f": {colour}".encode() in drawn


def lines(**series):
    """Points (x, mean) or (x, mean, SD) by method."""
    rows = [(name, *point, *[0.0] * (3 - len(point))) for name in series for point in series[name]]
    return pd.DataFrame(rows, columns=["method", "x", "mean", "sd"])


LABELS = ("t", "x", "y")


@pytest.fixture
def axes():
    figure = Figure()
    FigureCanvasAgg(figure)
    return figure.add_subplot()


def test_a_band_that_reaches_below_0_is_clipped_to_a_logarithmic_axis(axes):
    points = lines(A=[(1, 50, 20), (2, 4, 6), (3, 0)])
    draw_bands(axes, points, "x", LABELS, log_y=True)
    (band,) = axes.collections
    edge = axes.transData.transform(band.get_paths()[0].vertices)
    assert np.isfinite(edge).all()
    bottom = axes.get_ylim()[0]
    assert 0 < bottom < 4
    at_2 = [y for x, y in band.get_paths()[0].vertices if x == 2]
    assert sorted(at_2) == pytest.approx([bottom, 10])


def test_a_point_of_fewer_seeds_is_not_joined(axes):
    points = lines(A=[(1, 50), (2, 60), (3, 10)]).assign(seeds=[3, 3, 1])
    draw_bands(axes, points, "x", LABELS)
    drawn = {line.get_linestyle(): line.get_xdata().tolist() for line in axes.lines}
    assert drawn == {"None": [3], "-": [1, 2]}
    assert max(x for x, _ in axes.collections[0].get_paths()[0].vertices) == 2


def test_names_are_no_mathematics():
    name = r"costs 5$ \frac 6$"
    labels = (name, "x", "y")
    bands = partial(
        draw_bands,
        rows=lines(**{name: [(1, 0.5, 0.1), (2, 0.6, 0.1)]}),
        at="x",
        labels=labels,
        spans={name: (name, 0.5, 0.1)},
        level=(name, 0.5),
    )
    bars = partial(draw_bars, series={name: {name: [1.0]}, "o": {name: [2.0]}}, labels=labels)
    assert draw_panels([bands, bars])


@pytest.mark.parametrize(
    "names",
    [
        ("randopt", "modular_norm", "rmsnorm_only"),
        ("randopt", "modular_norm 0.08", "modular_norm 0.16", "modular_norm 0.32"),
        [f"attention_only_published {radius}" for radius in range(6)],
        ["a method with its radius and masses, which has a long name"],
    ],
)
def test_a_legend_leaves_room_for_its_panel(names):
    figure = Figure(figsize=(12.6, 3.2), layout="constrained")
    FigureCanvasAgg(figure)
    for axes in figure.subplots(1, 3):
        draw_bands(axes, lines(**{name: [(1, 0.5), (2, 0.6)] for name in names}), "x", LABELS)
    figure.draw_without_rendering()
    across = figure.bbox.width / 3
    for axes in figure.axes:
        legend = axes.get_legend()
        assert legend is not None
        assert legend.get_window_extent().width < across
        assert axes.bbox.width > 0.7 * across
        assert axes.bbox.height > 0.4 * figure.bbox.height
