"""The plot of a radius artifact: the measurements at each radius, and the choice."""

from functools import partial

from matplotlib.axes import Axes

from modnorm.analysis.drawing import (
    BARS,
    BASE_COLOUR,
    INK,
    RIGHT,
    WRONG,
    add_legend,
    drawn,
    name_axes,
)
from modnorm.radius.artifact_schema import GridDocument, MatchingDocument


def draw_radius(document: GridDocument | MatchingDocument) -> bytes:
    """Return the plot of an artifact as PNG bytes that depend on it alone."""
    if isinstance(document, GridDocument):
        return drawn(partial(_grid, document=document))
    return drawn(partial(_matching, document=document))


def _grid(axes: Axes, document: GridDocument) -> None:
    for one in document.radii:
        metrics = [trial.metric for trial in one.trials]
        axes.plot([one.radius] * len(metrics), metrics, "o", markersize=4, color=BARS)
    radii = [one.radius for one in document.radii]
    means = [one.mean for one in document.radii]
    axes.plot(radii, means, marker="o", markersize=5, linewidth=2, color=RIGHT, label="mean")
    _radius_axis(axes, radii, document.radius)
    seeds = ", ".join(map(str, document.settings.seeds))
    name_axes(
        axes,
        f"{document.method.name}: ensembles on development rows",
        "radius",
        f"metric, seeds {seeds}",
    )


def _matching(axes: Axes, document: MatchingDocument) -> None:
    radii = [one.radius for one in document.radii]
    reference = document.reference
    series = {
        "KL / isotropic": ([one.kl / reference.kl for one in document.radii], RIGHT),
        "hidden / isotropic": ([one.hidden / reference.hidden for one in document.radii], WRONG),
    }
    for name, (values, colour) in series.items():
        axes.plot(radii, values, marker="o", markersize=5, linewidth=2, color=colour, label=name)
    axes.axhline(1, color=INK, linewidth=1.2, label="match")
    # What moves nothing has ratios of 0, which a logarithmic axis leaves out.
    axes.set_yscale("log", nonpositive="mask")
    _radius_axis(axes, radii, document.radius)
    name_axes(
        axes,
        f"{document.method.name} against isotropic noise, sigma {reference.radius:g}",
        "radius",
        "ratio of displacements",
    )


def _radius_axis(axes: Axes, radii: list[float], chosen: float) -> None:
    axes.set_xscale("log")
    axes.set_xticks(radii, [f"{radius:g}" for radius in radii])
    axes.minorticks_off()
    axes.axvline(
        chosen,
        color=BASE_COLOUR,
        linestyle=(0, (4, 3)),
        linewidth=1.5,
        label=f"chosen {chosen:g}",
        zorder=1,  # below what was measured
    )
    add_legend(axes)
