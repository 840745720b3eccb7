"""The values of a page's address and its form."""

from collections.abc import Iterable, Mapping
from itertools import islice
from typing import Annotated, Literal, TypeVar

from pydantic import AfterValidator, BaseModel, ConfigDict, ValidationError

from modnorm.errors import InvalidInputError
from modnorm.spec.section import plain_words

SortColumn = Literal[
    "rank", "index", "seed", "state", "selection_reward", "gain", "heldout_metric",
    "selection_tokens",
]  # fmt: skip
PAGE_LINES = 50
LineT = TypeVar("LineT")
_LARGEST = 2**31 - 1


def _at_least(least: int) -> AfterValidator:
    """Return a check whose message has both bounds."""

    def check(value: int) -> int:
        if not least <= value <= _LARGEST:
            raise ValueError(f"must be a whole number from {least} to {_LARGEST}")
        return value

    return AfterValidator(check)


Size = Annotated[int, _at_least(1)]


class PageQuery(BaseModel):
    """The values that an address and its form may have, each page some of them."""

    model_config = ConfigDict(frozen=True)

    page: Size = 1
    n: Size | None = None
    """N and K of an ensemble; the largest by default."""
    k: Size | None = None
    row: Annotated[int, _at_least(0)] = 0
    candidate: Annotated[int, _at_least(-_LARGEST)] = 0
    split: Literal["selection", "heldout", "development"] | None = None
    wrong: bool = False
    sort: SortColumn = "rank"
    descending: bool = False


def read_query(form: Mapping[str, str], address: Mapping[str, object]) -> PageQuery:
    """Return the values of a page; a field of the form that is left empty has its default."""
    filled = {name: text.strip() for name, text in form.items() if text.strip()}
    try:
        return PageQuery.model_validate({**filled, **address})
    except ValidationError as error:
        fault = error.errors(include_url=False)[0]
        raise InvalidInputError(
            f"{str(fault['input'])[:80]!r} is not accepted",
            field=str(fault["loc"][0]),
            remedy=plain_words(fault),
        ) from error


def on_page(lines: Iterable[LineT], page: int) -> tuple[list[LineT], bool]:
    """Return the lines of a page, from 1, and whether there is a next page."""
    start = (page - 1) * PAGE_LINES
    found = list(islice(lines, start, start + PAGE_LINES + 1))
    return found[:PAGE_LINES], len(found) > PAGE_LINES
