"""The catalogue of the paper's data sets: their public origins and their splits."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from pydantic import TypeAdapter

from modnorm.errors import InvalidInputError
from modnorm.hints import one_of


@dataclass(frozen=True, slots=True)
class Part:
    """Consecutive rows of one split of a hub data set, or of one file of a folder."""

    file: str
    """Split on the hub, or a file's name in a folder without its suffix."""
    offset: int = 0


@dataclass(frozen=True, slots=True)
class Split:
    """A named list of rows."""

    rows: int
    digest: str | None
    """Digest of the rows; None if only their number is known."""
    parts: tuple[Part, ...]
    """Positions of the rows: first on the hub, then in files of folders."""
    rule: str
    """Description of the rows and their relation to the paper's."""
    file_sha256: str | None = None
    """SHA-256 of the paper's own file of the split, if it can be rebuilt."""


@dataclass(frozen=True, slots=True)
class Dataset:
    """The data of one task."""

    task: str
    licence: str
    splits: Mapping[str, Split]
    hub: str | None = None
    config: str | None = None
    revision: str | None = None
    """Pinned commit of the hub data set; None without one."""
    url: str | None = None
    sha256: str | None = None
    """SHA-256 of that file."""
    shuffled: bool = False
    """Whether the file's rows are shuffled before they are divided into splits."""

    @property
    def is_public(self) -> bool:
        """Whether the rows can be downloaded."""
        return self.hub is not None or self.url is not None


_CATALOGUE = Path(__file__).parents[1] / "bundled" / "datasets.json"
_DATASETS = TypeAdapter(tuple[Dataset, ...]).validate_json(_CATALOGUE.read_bytes())
DATASETS: Mapping[str, Dataset] = {data.task: data for data in _DATASETS}


def find_task(task: str) -> Dataset:
    if task not in DATASETS:
        raise InvalidInputError(
            f"there are no data of a task {task!r}", field="task", remedy=one_of(task, DATASETS)
        )
    return DATASETS[task]


def find_split(name: str, *, field: str) -> tuple[Dataset, str]:
    """Return the data set and the split of a name such as `gsm8k/selection`."""
    task, _, split = name.partition("/")
    if task not in DATASETS or split not in DATASETS[task].splits:
        names = [f"{data.task}/{part}" for data in DATASETS.values() for part in data.splits]
        raise InvalidInputError(
            f"there is no split named {name!r}", field=field, remedy=one_of(name, names)
        )
    return DATASETS[task], split
