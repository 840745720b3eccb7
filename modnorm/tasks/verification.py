"""Whether rows are those of a named split."""

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType

from modnorm.errors import InvalidInputError
from modnorm.tasks import mbpp
from modnorm.tasks.catalogue import Dataset
from modnorm.tasks.countdown import Countdown
from modnorm.tasks.files import Raw, RawRow
from modnorm.tasks.gsm8k import Gsm8k
from modnorm.tasks.manifest import SplitRecord, first_change
from modnorm.tasks.math500 import Math500
from modnorm.tasks.olympiadbench import OlympiadBench
from modnorm.tasks.protocol import Row
from modnorm.tasks.rocstories import RocStories
from modnorm.tasks.rows import rows_digest
from modnorm.tasks.uspto50k import Uspto50k

_PARSERS: Mapping[str, Callable[[Raw], Row]] = MappingProxyType(
    {
        "countdown": Countdown().parse,
        "gsm8k": Gsm8k().parse,
        "math500": Math500().parse,
        "mbpp": mbpp.parse_row,
        "olympiadbench": OlympiadBench().parse,
        "rocstories": RocStories().parse,
        "uspto50k": Uspto50k().parse,
    }
)


def verify(  # noqa: PLR0913 - half of them by keyword
    data: Dataset,
    name: str,
    rows: Sequence[RawRow],
    *,
    source: str,
    record: SplitRecord | None = None,
    field: str,
) -> str:
    """Return the digest of rows that are those of a split.

    Args:
        data: The task's data.
        name: The split, `selection`.
        rows: Raw rows with their places.
        source: What the rows were read from, for errors.
        record: What a manifest says of them: it stands in for a digest that the catalogue
            lacks, and tells which row was changed.
        field: Field for errors.

    Raises:
        InvalidInputError: they are not; names the row where that can be told.
    """
    split = data.splits[name]
    digest = _digest(data, rows, source, field)
    expected = split.digest or (record.digest if record else None)
    if len(rows) != split.rows:
        fault = f"{len(rows)} rows where {data.task}/{name} has {split.rows}"
    elif expected not in {None, digest}:
        fault = f"rows with the digest {digest} where {data.task}/{name} has {expected}"
    else:
        return digest
    place = first_change(record, rows) if record else None
    where = f"; the first that was changed is {place}" if place else ""
    raise InvalidInputError(f"{source} gives {fault}{where}", field=field)


def _digest(data: Dataset, rows: Sequence[RawRow], source: str, field: str) -> str:
    parsed = []
    for place, row in rows:
        try:
            parsed.append(_PARSERS[data.task](row))
        except InvalidInputError as error:
            raise InvalidInputError(
                f"{source}, {place}, column {error.field!r}: {error.message}", field=field
            ) from error
    return rows_digest(parsed)
