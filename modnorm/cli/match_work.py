"""The work of `modnorm match`: measure, then show the radius."""

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from modnorm.cli.console import stderr, table
from modnorm.cli.counts import Counts, counting
from modnorm.cli.options import settings
from modnorm.cli.radius import conclude
from modnorm.client.matching import make_plan
from modnorm.radius.artifact_schema import MatchingDocument, MatchingSettings
from modnorm.radius.functional_matching import Measurement, match
from modnorm.spec import ExperimentSpec

if TYPE_CHECKING:
    from rich.table import Table


def match_all(  # noqa: PLR0913 - the options of the command
    spec: ExperimentSpec,
    radii: Sequence[float],
    sigma: float,
    how: MatchingSettings,
    home: Path,
    *,
    quiet: bool,
    as_json: bool,
) -> None:
    """Measure a matching, and write and show its artifact. The caller has locked `home`."""
    with counting(stderr(), quiet=quiet) as counts:
        plan = make_plan(
            spec,
            radii=radii,
            sigma=sigma,
            settings=how,
            folder=home,
            client=settings(),
            on_calibration=partial(counts.show, "calibrating"),
        )
        shown = _Measurements(counts, how.candidates)
        document = match(plan, home / "measurements.jsonl", on_step=shown)
    conclude(document, _table(document), home, as_json=as_json)


class _Measurements:
    """Shows a count, and a line when all candidates of a condition are measured."""

    def __init__(self, counts: Counts, candidates: int) -> None:
        self._counts = counts
        self._candidates = candidates

    def __call__(self, step: Measurement) -> None:
        self._counts.show("measuring", step.done, step.total)
        if step.done % self._candidates == 0:
            conditions = f"{step.done // self._candidates}/{step.total // self._candidates}"
            self._counts.note(f"{conditions}  {step.method} {step.radius:g} measured")


def _table(document: MatchingDocument) -> "Table":
    reference = document.reference
    rows = [
        ("isotropic", f"{reference.radius:g}", *_figures(reference.kl, reference.hidden), "", "")
    ]
    rows += [
        (
            document.method.name,
            f"{one.radius:g}",
            *_figures(one.kl, one.hidden),
            "-" if one.objective is None else f"{one.objective:.4f}",
            "selected" if one.radius == document.radius else "",
        )
        for one in document.radii
    ]
    return table(("method", "radius", "KL", "hidden", "J", ""), rows)


def _figures(kl: float, hidden: float) -> tuple[str, str]:
    return f"{kl:.3e}", f"{hidden:.4f}"
