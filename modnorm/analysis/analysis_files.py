"""An analysis as files: its tables in every format, its figures as PNG and SVG."""

import io
from dataclasses import dataclass
from pathlib import Path
from typing import get_args

import pandas as pd

from modnorm.analysis.analyses import Analysis
from modnorm.analysis.figures import draw_panels, plan_figures
from modnorm.analysis.plots import Image
from modnorm.files import write_file

FORMATS = ("csv", "parquet", "md", "tex")
_SIGNIFICANT = ".4g"
"""Digits in Markdown and LaTeX; CSV and Parquet hold every digit."""


def write_table(directory: Path, name: str, table: pd.DataFrame) -> list[Path]:
    """Write a table in every format, each file whole or not at all."""
    directory.mkdir(parents=True, exist_ok=True)
    paths = {kind: directory / f"{name}.{kind}" for kind in FORMATS}
    write_file(paths["csv"], table.to_csv(index=False).encode())
    parquet = io.BytesIO()
    table.to_parquet(parquet, index=False)
    write_file(paths["parquet"], parquet.getvalue())
    shown = table.astype(object).where(table.notna(), None)
    for kind, form in (("md", "pipe"), ("tex", "latex_booktabs")):
        text = shown.to_markdown(index=False, tablefmt=form, floatfmt=_SIGNIFICANT, missingval="-")
        write_file(paths[kind], f"{text}\n".encode())
    return list(paths.values())


@dataclass(frozen=True, slots=True)
class WrittenAnalysis:
    """Names of the written files."""

    tables: tuple[str, ...]
    """Files `tables/NAME.csv`, `.parquet`, `.md` and `.tex`."""
    figures: tuple[str, ...]
    """Files `figures/NAME.png` and `.svg`."""


def write_analysis(directory: Path, analysis: Analysis) -> WrittenAnalysis:
    """Write the tables and the figures of an analysis; older ones are replaced."""
    for name, table in analysis.tables.items():
        write_table(directory / "tables", name, table)
    return WrittenAnalysis(tuple(analysis.tables), write_figures(directory / "figures", analysis))


def write_figures(directory: Path, analysis: Analysis) -> tuple[str, ...]:
    """Write the figures of an analysis as `NAME.png` and `NAME.svg`; return their names."""
    figures = plan_figures(analysis)
    for name, panels in figures.items():
        directory.mkdir(parents=True, exist_ok=True)
        for image in get_args(Image):
            write_file(directory / f"{name}.{image}", draw_panels(panels, image))
    return tuple(figures)
