"""Faults of prompts by their rows, and the lengths that an engine takes."""

import re
from collections.abc import Iterator
from contextlib import contextmanager

from modnorm.errors import InvalidInputError
from modnorm.spec import ExperimentSpec
from modnorm.spec_checks import Splits, development_of

_PROMPT = re.compile(r"prompts\.([0-9]+)")


@contextmanager
def naming_rows(spec: ExperimentSpec, data: Splits) -> Iterator[None]:
    """Replace the prompt's index in an error by the source and the place of its row."""
    try:
        yield
    except InvalidInputError as error:
        index = prompt_at_fault(error)
        if index is None:
            raise
        splits = [
            ("task.selection", spec.task.selection, data.selection),
            ("task.heldout", spec.task.heldout, data.heldout),
        ]
        place, chosen_on = development_of(spec)
        if data.development and chosen_on:
            splits.append((place, chosen_on, data.development))
        if data.training and spec.distillation:
            splits.append(("distillation.rows", spec.distillation.rows, data.training))
        while index >= len(splits[0][2].rows):
            index -= len(splits.pop(0)[2].rows)
        field, named, rows = splits[0]
        raise InvalidInputError(
            f"{named.source}, {rows.places[index]}: {error.message}",
            field=field,
            remedy=error.remedy,
        ) from error


def prompt_at_fault(error: InvalidInputError) -> int | None:
    """Return the index of the prompt that an error is about, if any."""
    match = _PROMPT.fullmatch(error.field or "")
    return int(match[1]) if match else None


def check_length(spec: ExperimentSpec, longest_prompt: int, max_tokens: int) -> None:
    """Refuse an engine whose sequences are shorter than those of the task."""
    bound, needed = spec.engine.max_model_len, longest_prompt + max_tokens
    if bound is not None and bound < needed:
        raise InvalidInputError(
            f"the longest prompt has {longest_prompt} tokens, and {max_tokens} may follow",
            field="engine.max_model_len",
            remedy=f"raise it to {needed}, or omit it",
        )
