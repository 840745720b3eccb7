"""The cells of a suite: one experiment spec each."""

import hashlib
import re
import unicodedata
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product

from modnorm.errors import InvalidInputError
from modnorm.perturbation.methods import METHODS
from modnorm.spec import ExperimentSpec, parse_spec
from modnorm.suites.declaration import Fragment, Suite, Where

_NOT_IN_NAMES = re.compile(r"(?:[^\w.]|_)+")
"""Names keep the letters and digits of any script; the underscore stands between labels."""
_LONGEST_NAME = 100
"""In bytes: a file system takes up to 255."""
_SHORT_FORMS = {
    **dict.fromkeys(("model", "method", "engine"), "name"),
    **dict.fromkeys(("selection", "heldout", "development"), "source"),
}
"""Sections that a spec may give by one field alone, and that field."""


@dataclass(frozen=True)
class Cell:
    """One combination of options and a seed."""

    id: str
    """Name of its directory: the labels, then the seed."""
    labels: Mapping[str, str]
    """Option by axis, and `seed`."""
    seed: int
    spec: ExperimentSpec
    """Without a profile, where it is to use that of another cell."""
    profile_of: str | None = None
    """Id of the cell whose profile it uses."""

    def with_profile(self, digest: str) -> ExperimentSpec:
        """Return the spec with the profile that another cell calibrated."""
        method = self.spec.method.model_copy(update={"profile": digest})
        return self.spec.model_copy(update={"method": method})


def make_cells(suite: Suite, settings: Sequence[Fragment] = ()) -> tuple[Cell, ...]:
    """Return the cells in the order of the axes as declared, the seed last.

    Args:
        suite: The suite.
        settings: Fragments laid over every cell at last.

    Raises:
        InvalidInputError: a cell's spec is not sound, or two cells have one name; names the cell
            and the field.
    """
    cells = [
        _cell(suite, labels, seed, settings)
        for labels in _combinations(suite)
        for seed in suite.seeds
        if not _is_excluded(suite, {**labels, "seed": str(seed)})
    ]
    _check_names(cells)
    return tuple(_with_origins(suite, cells))


def overlay(lower: Fragment, upper: Fragment) -> dict[str, object]:
    """Lay a fragment over another: mappings merge, all else is replaced.

    What lies below a mapping may be a section that is given by its name or source alone.
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

    An iterative method reports one model, after N = updates times candidates of an update.
    """
    population = spec.population
    if spec.iterative is not None:
        return ((population.size * spec.iterative.updates, 1),)
    return tuple(product(population.reported_prefixes, population.ensemble_sizes))


def matches(labels: Mapping[str, str], where: Where) -> bool:
    """Tell whether a cell has one of the options named on every axis named."""
    return all(
        labels.get(axis) in ((found,) if isinstance(found, str) else found)
        for axis, found in where.items()
    )


def place_of(suite: Suite, axis: str, label: str) -> int:
    """Return where an option stands on its axis; of N, K and the seed, which have none, itself."""
    options = suite.axes.get(axis)
    return int(label) if options is None else list(options).index(label)


def _combinations(suite: Suite) -> Iterator[dict[str, str]]:
    for options in product(*suite.axes.values()):
        yield dict(zip(suite.axes, options, strict=True))


def _is_excluded(suite: Suite, labels: Mapping[str, str]) -> bool:
    return any(matches(labels, where) for where in suite.exclude)


def _cell(
    suite: Suite, labels: Mapping[str, str], seed: int, settings: Sequence[Fragment]
) -> Cell:
    named = {**labels, "seed": str(seed)}
    content = overlay({}, suite.base)
    for axis, label in labels.items():
        content = overlay(content, suite.axes[axis][label])
    for override in suite.overrides:
        if matches(named, override.where):
            content = overlay(content, override.set)
    content = overlay(content, {"population": {"seed": seed}})
    for fragment in settings:
        content = overlay(content, fragment)
    where = " / ".join(named.values())
    try:
        spec = parse_spec(content)
    except InvalidInputError as error:
        raise InvalidInputError(
            f"{error.field}: {error.message}", field=f"cell {where}", remedy=error.remedy
        ) from error
    if spec.population.seed != seed:
        raise InvalidInputError(
            "population.seed would be one for all cells, and they are told apart by it",
            field="set",
            remedy="name other seeds in the suite file, or choose among its own with --only seed=",
        )
    spec = spec.model_copy(update={"name": _title(spec)})
    return Cell(_name(named), named, seed, spec)


def _title(spec: ExperimentSpec) -> str:
    """Name an experiment by its content, so that suites that share it make one experiment."""
    model = spec.model.name.rpartition("/")[2]
    drawn = spec.population
    return f"{model} {spec.task.name} {spec.method.name} N={drawn.size} seed {drawn.seed}"[:200]


def _name(labels: Mapping[str, str]) -> str:
    text = "_".join(map(_name_of_label, labels.values()))
    if len(text.encode()) <= _LONGEST_NAME:
        return text
    start = text.encode()[: _LONGEST_NAME - 9].decode(errors="ignore")
    return f"{start}-{_short_digest(text)}"


def _name_of_label(label: str) -> str:
    """Return a label as a part of a name; one that has neither letters nor digits is hashed."""
    plain = unicodedata.normalize("NFC", label).lower()
    return _NOT_IN_NAMES.sub("-", plain).strip("-.") or _short_digest(label)


def _short_digest(text: str) -> str:
    return hashlib.sha256(text.encode(errors="surrogatepass")).hexdigest()[:8]


def _check_names(cells: Sequence[Cell]) -> None:
    names = [cell.id for cell in cells]
    for name in names:
        if names.count(name) > 1:
            raise InvalidInputError(
                f"two cells are named {name!r}", field="axes", remedy="tell their options apart"
            )
    if not cells:
        raise InvalidInputError("there are no cells left", field="exclude")


def _with_origins(suite: Suite, cells: Sequence[Cell]) -> Iterator[Cell]:
    """Name the cell whose profile each cell uses, where the suite shares profiles."""
    shared = suite.profiles
    if shared is None:
        yield from cells
        return
    origins = [
        cell
        for cell in cells
        if cell.labels[shared.axis] == shared.origin and _calibrates(cell.spec)
    ]
    for cell in cells:
        if not _calibrates(cell.spec) or cell.labels[shared.axis] == shared.origin:
            yield cell
            continue
        yield replace(cell, profile_of=_origin(cell, origins))


def _origin(cell: Cell, origins: Sequence[Cell]) -> str:
    for origin in origins:
        if (origin.spec.model, origin.spec.calibration) == (
            cell.spec.model,
            cell.spec.calibration,
        ):
            return origin.id
    raise InvalidInputError(
        f"no cell calibrates the model of {cell.id}",
        field="profiles.from",
        remedy="leave the option in, or name the profile with method.profile",
    )


def _calibrates(spec: ExperimentSpec) -> bool:
    method = METHODS.get(spec.method.name)
    return method is not None and method.needs_profile and spec.method.profile is None
