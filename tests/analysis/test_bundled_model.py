"""The README's table, of as many seeds as were asked for."""

from typing import cast

import pytest

from benchmarks import bundled_model
from modnorm.analysis.comparison import ComparisonRow


def _row(base: float, best: float) -> ComparisonRow:
    return cast("ComparisonRow", {"base": base, "radius": 0.64, "ensembles": {1: best}})


@pytest.mark.parametrize(
    ("rows", "line"),
    [
        ([_row(0.29, 0.55)], "| RandOpt | 0.64 | 55.0 |"),
        ([_row(0.29, 0.55), _row(0.29, 0.57)], "| RandOpt | 0.64 | 56.0 ± 1.4 |"),
    ],
)
def test_one_seed_has_no_deviation(rows: list[ComparisonRow], line: str) -> None:
    assert line in bundled_model._table({"RandOpt": rows})
