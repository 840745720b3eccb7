"""The values of a page's address and its form, and the candidates that they ask for."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Literal

import pandas as pd
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError

from modnorm.analysis.candidates import CandidateRecord, candidate_records
from modnorm.errors import InvalidInputError
from modnorm.spec.section import plain_words

SortColumn = Literal[
    "rank", "index", "seed", "state", "selection_reward", "gain", "heldout_metric",
    "selection_tokens",
]  # fmt: skip
State = Literal["scored", "stopped", "failed"]
PAGE_LINES = 50
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
    state: State | None = None
    least: Annotated[float, Field(allow_inf_nan=False)] | None = None
    """Least selection reward."""
    experts: bool = False
    """Whether only candidates with a held-out metric are wanted."""


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


@dataclass(frozen=True, slots=True)
class CandidatePage:
    """One page of the candidates that match a query."""

    lines: tuple[CandidateRecord, ...]
    page: int
    pages: int
    matches: int


def candidate_page(candidates: pd.DataFrame, query: PageQuery) -> CandidatePage:
    """Return one page of candidates; a page past the last one is the last."""
    found = candidates
    if query.state is not None:
        found = found[found["state"] == query.state]
    if query.least is not None:
        found = found[found["selection_reward"] >= query.least]
    if query.experts:
        found = found[found["heldout_metric"].notna()]
    keys = list(dict.fromkeys([query.sort, "index"]))
    order = [not query.descending, True][: len(keys)]
    found = found.sort_values(keys, ascending=order)
    pages = max(1, -(-len(found) // PAGE_LINES))
    page = min(query.page, pages)
    shown = found[(page - 1) * PAGE_LINES : page * PAGE_LINES]
    return CandidatePage(candidate_records(shown), page, pages, len(found))
