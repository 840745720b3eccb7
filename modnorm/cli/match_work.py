"""The work of `modnorm match`: measure here or in a lab, then show the radius."""

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from modnorm.cli.console import stderr, table
from modnorm.cli.counts import Counts, counting
from modnorm.cli.options import connect, settings
from modnorm.cli.radius import conclude
from modnorm.errors import ModnormError
from modnorm.radius.artifact_schema import MatchingDocument
from modnorm.spec import ExperimentSpec
from modnorm.wire.radius_conversions import Matching

if TYPE_CHECKING:
    from rich.table import Table

    from modnorm.radius.functional_matching import Measurement


def match_all(  # noqa: PLR0913 - the options of the command
    spec: ExperimentSpec,
    wanted: Matching,
    home: Path,
    server: str | None,
    *,
    quiet: bool,
    as_json: bool,
) -> None:
    """Measure a matching, and write and show its artifact.

    The caller has locked `home`. Without a server this process measures.
    """
    document = (
        _measure(spec, wanted, home, quiet=quiet)
        if server is None
        else _in_lab(spec, wanted, server, quiet=quiet)
    )
    conclude(document, _table(document), home, as_json=as_json)


def _measure(
    spec: ExperimentSpec, wanted: Matching, out: Path, *, quiet: bool
) -> MatchingDocument:
    from modnorm.client.matching import make_plan
    from modnorm.radius.functional_matching import match as measure

    with counting(stderr(), quiet=quiet) as counts:
        plan = make_plan(
            spec,
            radii=wanted.radii,
            sigma=wanted.sigma,
            settings=wanted.settings,
            folder=out,
            client=settings(),
            on_calibration=partial(counts.show, "calibrating"),
        )
        shown = _Measurements(counts, wanted.settings.candidates)
        return measure(plan, out / "measurements.jsonl", on_step=shown)


def _in_lab(
    spec: ExperimentSpec, wanted: Matching, server: str, *, quiet: bool
) -> MatchingDocument:
    from modnorm.client.lab_matching import LabStep, match_in_lab

    with connect(server) as client, counting(stderr(), quiet=quiet) as counts:

        def on_step(step: LabStep) -> None:
            counts.show(step.phase, step.done, step.total)

        document = match_in_lab(client, spec, wanted, on_step).document
    if not isinstance(document, MatchingDocument):
        raise ModnormError("the lab returned the artifact of a grid")
    return document


class _Measurements:
    """Shows a count, and a line when all candidates of a condition are measured."""

    def __init__(self, counts: Counts, candidates: int) -> None:
        self._counts = counts
        self._candidates = candidates

    def __call__(self, step: "Measurement") -> None:
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
