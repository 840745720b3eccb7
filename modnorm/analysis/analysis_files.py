"""An analysis as files: its tables in every format, its figures as PNG and SVG."""

from dataclasses import dataclass
from pathlib import Path
from typing import get_args

from modnorm.analysis.analyses import Analysis
from modnorm.analysis.bands import draw_panels
from modnorm.analysis.drawing import Image
from modnorm.analysis.figures import plan_figures
from modnorm.analysis.table_files import write_table
from modnorm.files import write_file


@dataclass(frozen=True, slots=True)
class WrittenAnalysis:
    """Names of the written files."""

    tables: tuple[str, ...]
    """Files `tables/NAME.csv`, `.parquet`, `.md` and `.tex`."""
    figures: tuple[str, ...]
    """Files `figures/NAME.png` and `.svg`."""


def write_analysis(directory: Path, analysis: Analysis) -> WrittenAnalysis:
    """Write the tables and the figures of an analysis; older ones are replaced.

    Raises:
        OSError: the directory cannot be written.
    """
    for name, table in analysis.tables.items():
        write_table(directory / "tables", name, table)
    return WrittenAnalysis(tuple(analysis.tables), write_figures(directory / "figures", analysis))


def write_figures(directory: Path, analysis: Analysis) -> tuple[str, ...]:
    """Write the figures of an analysis as `NAME.png` and `NAME.svg`; return their names.

    Raises:
        OSError: the directory cannot be written.
    """
    figures = plan_figures(analysis)
    for name, panels in figures.items():
        directory.mkdir(parents=True, exist_ok=True)
        for image in get_args(Image):
            write_file(directory / f"{name}.{image}", draw_panels(panels, image))
    return tuple(figures)
