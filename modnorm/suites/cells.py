"""The cells of a suite: one experiment spec each."""

import hashlib
import re
import unicodedata
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import reduce
from itertools import product
from types import MappingProxyType

from modnorm.errors import InvalidInputError
from modnorm.perturbation.methods import METHODS
from modnorm.spec import ExperimentSpec, parse_spec
from modnorm.spec_limits import MAX_NAME
from modnorm.suites.suite_file import NUMBERS, Fragment, Suite, TailTable, Where

_NOT_IN_NAMES = re.compile(r"(?:[^\w.]|_)+")
"""Names keep letters and digits of any script; an underscore separates labels."""
_LONGEST_NAME = 100
"""In bytes; file systems accept 255."""
_SHORT_FORMS = {
    **dict.fromkeys(("model", "method", "engine"), "name"),
    **dict.fromkeys(("selection", "heldout", "development", "rows"), "source"),
}
"""Sections that may be written as one string, and the field that the string sets."""


@dataclass(frozen=True)
class Cell:
    """One combination of options and a seed."""

    id: str
    """Name of the cell's directory: the labels, then the seed."""
    labels: Mapping[str, str]
    """Option by axis, and `seed`."""
    seed: int
    spec: ExperimentSpec
    """Names no profile if the cell uses that of another cell."""
    profile_of: str | None = None
    """Id of the other cell whose profile this cell uses."""

    def with_profile(self, digest: str) -> ExperimentSpec:
        """Return the spec with the profile of another cell."""
        method = self.spec.method.model_copy(update={"profile": digest})
        return self.spec.model_copy(update={"method": method})


def make_cells(
    suite: Suite, settings: Sequence[Fragment] = (), only: Where = MappingProxyType({})
) -> tuple[Cell, ...]:
    """Return the cells in the order of the axes as declared, the seed last.

    The fragments of `settings` are laid over every cell last. A cell with a fault is left out if
    `only` names other cells, and those need no profile of it.
    """
    cells, faults, is_whole = [], list[InvalidInputError](), True
    for options, seed in product(product(*suite.axes.values()), suite.seeds):
        labels = dict(zip((*suite.axes, "seed"), (*options, str(seed)), strict=True))
        if any(matches(labels, where) for where in suite.exclude):
            continue
        try:
            cells.append(_cell(suite, labels, seed, settings))
        except InvalidInputError as error:
            if matches(labels, only):
                raise
            is_whole = False
            if _is_origin(suite, labels):
                faults.append(error)
    _check_names(cells)
    if is_whole and not changes_sizes(settings):
        _check_sizes(suite, cells)
    return tuple(_with_origins(suite, cells, only, faults))


def changes_sizes(settings: Sequence[Fragment]) -> bool:
    """Return whether settings may change N or K, for a trial whose tables may stay empty."""
    return any({"population", "iterative"} & fragment.keys() for fragment in settings)


def overlay(lower: Fragment, upper: Fragment) -> dict[str, object]:
    """Lay a fragment over another: mappings merge, other values are replaced.

    A mapping also merges with a section that is written as one string.
    """
    merged = dict(lower)
    for key, value in upper.items():
        below = merged.get(key)
        if isinstance(below, str) and key in _SHORT_FORMS:
            below = {_SHORT_FORMS[key]: below}
        if isinstance(below, Mapping) and isinstance(value, Mapping):
            merged[key] = overlay(below, value)
        else:
            merged[key] = value
    return merged


def ensembles_of(spec: ExperimentSpec) -> tuple[tuple[int, int], ...]:
    """Return every (N, K) that an experiment reports.

    An iterative method reports one model: N is its number of updates times candidates per update.
    """
    population = spec.population
    if spec.iterative is not None:
        return ((population.size * spec.iterative.updates, 1),)
    return tuple(product(population.reported_prefixes, population.ensemble_sizes))


def matches(labels: Mapping[str, str], where: Where) -> bool:
    """Return whether a cell has one of the options on every named axis."""
    return all(
        labels.get(axis) in (options if isinstance(options, tuple) else (options,))
        for axis, options in where.items()
    )


def _cell(
    suite: Suite, labels: Mapping[str, str], seed: int, settings: Sequence[Fragment]
) -> Cell:
    fragments = [
        suite.base,
        *(options[labels[axis]] for axis, options in suite.axes.items()),
        *(override.set for override in suite.overrides if matches(labels, override.where)),
        {"population": {"seed": seed}},
        *settings,
    ]
    with naming_cell(labels):
        spec = parse_spec(reduce(overlay, fragments, {}))
    if spec.population.seed != seed:
        raise InvalidInputError(
            "all cells would have the same population.seed, but each seed makes a cell",
            field="set",
            remedy="name other seeds in the suite file, or choose some with --only seed=",
        )
    spec = spec.model_copy(update={"name": _title(spec)})
    text = "_".join(map(_name_of_label, labels.values()))
    if len(text.encode()) > _LONGEST_NAME:
        start = text.encode()[: _LONGEST_NAME - 9].decode(errors="ignore")
        text = f"{start}-{_short_digest(text)}"
    return Cell(text, labels, seed, spec)


@contextmanager
def naming_cell(labels: Mapping[str, str]) -> Iterator[None]:
    """Add the cell to an error in its spec."""
    try:
        yield
    except InvalidInputError as error:
        raise InvalidInputError(
            error.reason, field=f"cell {' / '.join(labels.values())}", remedy=error.remedy
        ) from error


def _title(spec: ExperimentSpec) -> str:
    """Name an experiment by its content, so that suites share equal experiments."""
    model = spec.model.name.rpartition("/")[2]
    population = spec.population
    sizes = f"N={population.size} seed {population.seed}"
    if spec.distillation is not None:
        sizes += f" distilled {spec.distillation.rounds} times"
    return f"{model} {spec.task.name} {spec.method.name} {sizes}"[:MAX_NAME]


def _name_of_label(label: str) -> str:
    """Return a label as a part of a name; a label without letters and digits is hashed."""
    plain = unicodedata.normalize("NFC", label).lower()
    return _NOT_IN_NAMES.sub("-", plain).strip("-.") or _short_digest(label)


def _short_digest(text: str) -> str:
    return hashlib.sha256(text.encode(errors="surrogatepass")).hexdigest()[:8]


def _check_names(cells: Sequence[Cell]) -> None:
    counts = Counter(cell.id for cell in cells)
    for name, count in counts.items():
        if count > 1:
            raise InvalidInputError(
                f"two cells are named {name!r}",
                field="axes",
                remedy="give their options distinct names",
            )
    if not counts:
        raise InvalidInputError("there are no cells left", field="exclude")


def _check_sizes(suite: Suite, cells: Sequence[Cell]) -> None:
    """Refuse a table with an N or K that no cell reports."""
    ensembles = [ensemble for cell in cells for ensemble in ensembles_of(cell.spec)]
    reported = dict(zip(NUMBERS, map(set, zip(*ensembles, strict=True)), strict=True))
    for index, table in enumerate(suite.tables):
        for field, pick in table.references():
            for axis in (each for each in NUMBERS if each in pick):
                known, option = reported[axis], pick[axis]
                # A tail table takes the first N candidates of a population, for any N.
                is_tail = isinstance(table, TailTable) and axis == "N"
                sizes = list(map(str, sorted(known)))
                if str(option) not in sizes and not (is_tail and int(option) < max(known)):
                    raise InvalidInputError(
                        f"{axis} has no option {option}, only {', '.join(sizes)}",
                        field=f"tables.{index}.{field}",
                    )


def _with_origins(
    suite: Suite, cells: Sequence[Cell], only: Where, faults: Sequence[InvalidInputError]
) -> Iterator[Cell]:
    """Set the cell whose profile each cell uses, if the suite shares profiles.

    `faults` are those of left out cells whose profiles others use.
    """
    origins = {
        (cell.spec.model, cell.spec.calibration): cell.id
        for cell in reversed(cells)
        if _is_origin(suite, cell.labels) and calibrates(cell.spec)
    }
    for cell in cells:
        has_own = _is_origin(suite, cell.labels) or cell.spec.distillation is not None
        if suite.profiles is None or has_own or not calibrates(cell.spec):
            yield cell
            continue
        origin = origins.get((cell.spec.model, cell.spec.calibration))
        if origin is not None:
            yield replace(cell, profile_of=origin)
        elif matches(cell.labels, only):
            raise next(iter(faults), None) or InvalidInputError(
                f"no cell calibrates the model of {cell.id}",
                field="profiles.from",
                remedy="do not exclude the option, or name the profile with method.profile",
            )


def _is_origin(suite: Suite, labels: Mapping[str, str]) -> bool:
    """Return whether other cells of the suite use the profile of a cell."""
    shared = suite.profiles
    return shared is not None and labels[shared.axis] == shared.origin


def calibrates(spec: ExperimentSpec) -> bool:
    """Return whether a run of the spec measures a profile."""
    method = METHODS.get(spec.method.name)
    return method is not None and method.needs_profile and spec.method.profile is None
