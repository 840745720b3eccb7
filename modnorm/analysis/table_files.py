"""Tables as files: CSV, Parquet, Markdown and LaTeX."""

import io
from pathlib import Path

import pandas as pd

from modnorm.files import write_file

FORMATS = ("csv", "parquet", "md", "tex")
_SIGNIFICANT = ".4g"
"""Digits in Markdown and LaTeX; CSV and Parquet hold every digit."""


def write_table(directory: Path, name: str, table: pd.DataFrame) -> list[Path]:
    """Write a table in every format, each file whole or not at all.

    Args:
        directory: Directory of the files; created if needed.
        name: Name of the files, without an extension.
        table: The table.

    Returns:
        The files.

    Raises:
        OSError: a file cannot be written.
    """
    directory.mkdir(parents=True, exist_ok=True)
    paths = {kind: directory / f"{name}.{kind}" for kind in FORMATS}
    write_file(paths["csv"], table.to_csv(index=False).encode())
    parquet = io.BytesIO()
    table.to_parquet(parquet, index=False)
    write_file(paths["parquet"], parquet.getvalue())
    shown = table.astype(object).where(table.notna(), None)
    markdown = shown.to_markdown(index=False, floatfmt=_SIGNIFICANT, missingval="-")
    write_file(paths["md"], f"{markdown}\n".encode())
    latex = table.to_latex(
        index=False, escape=True, na_rep="-", float_format=lambda value: f"{value:{_SIGNIFICANT}}"
    )
    write_file(paths["tex"], latex.encode())
    return list(paths.values())
