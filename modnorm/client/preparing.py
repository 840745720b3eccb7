"""A generator of the ZO-Finetuner from solved puzzles and a model on disk."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from itertools import islice
from pathlib import Path
from typing import cast

import torch

from modnorm.baselines.generator_file import GeneratorFile, read_generator
from modnorm.baselines.preparation import Example, PreparationSettings, prepare, solution_text
from modnorm.checkpoint.pretrained import best_device, load_pretrained
from modnorm.checkpoint.prompts import PromptEncoder
from modnorm.checkpoint.reference import Checkpoint, resolve_checkpoint
from modnorm.checkpoint.weights import CheckpointWeights
from modnorm.errors import InvalidInputError
from modnorm.spec import DataSpec
from modnorm.tasks import get_task
from modnorm.tasks.row_loading import open_source, parse_row

_SOLUTION = "solution"
"""Column of the rows that holds an expression which solves the puzzle."""


def prepare_generator(  # noqa: PLR0913 - the last two are keyword-only
    model: str,
    revision: str | None,
    data: DataSpec,
    settings: PreparationSettings,
    *,
    on_batch: Callable[[int, int], None],
    folders: Sequence[Path] | None = None,
) -> GeneratorFile:
    """Prepare a generator on puzzles whose stored solution is right; others are skipped."""
    checkpoint = resolve_checkpoint(model, revision)
    examples = list(_examples(checkpoint, data, folders))
    if not examples:
        raise InvalidInputError(
            f"no row of {data.source} has a right {_SOLUTION}",
            field="data",
            remedy=f"give rows of Countdown with a column {_SOLUTION}",
        )
    layout = CheckpointWeights(checkpoint).layout
    trained = load_pretrained(checkpoint, dtype=torch.float32, attention="sdpa")
    cast("torch.nn.Module", trained).to(best_device())
    generator = prepare(trained, layout, examples, settings, on_batch=on_batch)
    made_from = {"model": checkpoint.digest, "examples": len(examples), "data": data.source}
    return read_generator(generator.to_json({**asdict(settings), **made_from}))


def _examples(
    checkpoint: Checkpoint, data: DataSpec, folders: Sequence[Path] | None
) -> Iterator[Example]:
    """Yield the rows with a right solution, as token ids."""
    task, encoder = get_task("countdown"), PromptEncoder(checkpoint)
    stop = None if data.limit is None else data.offset + data.limit
    opened = open_source(data, field="data", roots=None, folders=folders)
    for place, raw in islice(opened.rows, data.offset, stop):
        row = parse_row(task, raw, f"{data.source}, {place}", field="data")
        text = solution_text(str(raw.get(_SOLUTION)))
        if task.judge(row, text).correct:
            prompt = encoder.encode(task.messages(row))
            yield Example(tuple(prompt), (*encoder.encode_text(text), encoder.end_id))
