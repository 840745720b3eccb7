"""The style of all plots, and image bytes that depend on the content alone."""

import io
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Literal

from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

INK, MUTED, GRID = "#1f2933", "#66727f", "#e4e8ec"
BARS, RIGHT, WRONG, BASE_COLOUR = "#8fc1de", "#2a6f97", "#d9a48f", "#b4472e"
Image = Literal["png", "svg"]
_METADATA: Mapping[Image, dict[str, None]] = MappingProxyType(
    {"png": {"Software": None}, "svg": {"Date": None, "Creator": None}}
)
_SIZE = (6.4, 3.8)
_DPI = 160
_DARK = {INK: "#e3e8ed", MUTED: "#9aa6b2", GRID: "#2d3640", "#ffffff": "#14191f"}


def drawn(draw: Callable[[Axes], None], image: Image = "png") -> bytes:
    """Return the image that a function draws on one pair of axes."""
    figure = Figure(figsize=_SIZE, dpi=_DPI, layout="constrained", facecolor="white")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    prepare(axes)
    draw(axes)
    return saved(figure, image)


def follow_theme(svg: bytes) -> bytes:
    """Return an SVG image whose neutral colours are those of the reader's light or dark theme."""
    rules = "".join(
        f'[style*="{name}: {light}"] {{ {name}: {dark} !important; }}'
        for light, dark in _DARK.items()
        for name in ("fill", "stroke")
    )
    style = f"<style>@media (prefers-color-scheme: dark) {{ {rules} }}</style>\n <defs>"
    return svg.replace(b"<defs>", style.encode(), 1)


def saved(figure: Figure, image: Image = "png") -> bytes:
    """Return the bytes of a figure, without a date and the name of a program."""
    content = io.BytesIO()
    with rc_context({"svg.hashsalt": "modnorm"}):  # else element ids are random
        figure.savefig(content, format=image, metadata=_METADATA[image])
    return content.getvalue()


def prepare(axes: Axes) -> None:
    """Give a pair of axes the style."""
    for side in ("top", "right", "left"):
        axes.spines[side].set_visible(False)
    axes.spines["bottom"].set_color(MUTED)
    axes.tick_params(colors=MUTED, length=0, labelsize=9)
    axes.grid(visible=True, axis="y", color=GRID, linewidth=0.8)
    axes.set_axisbelow(True)


def name_axes(axes: Axes, title: str, x: str, y: str) -> None:
    """Set title and names of the axes."""
    axes.set_title(title, loc="left", fontsize=11, fontweight="bold", color=INK, pad=10)
    axes.set_xlabel(x, color=MUTED, fontsize=9)
    axes.set_ylabel(y, color=MUTED, fontsize=9)


def add_legend(axes: Axes) -> None:
    """Put the legend to the right of the axes."""
    axes.legend(
        frameon=False,
        fontsize=9,
        labelcolor=INK,
        loc="center left",
        bbox_to_anchor=(1.0, 0.5),
        handlelength=1.4,
    )
