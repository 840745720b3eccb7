"""Texts for `search --texts`: the answers of a run, which a model with random weights says.

    python -m benchmarks.gpu_search record RUN --out texts.npy [--tokens 1024]

RUN is a run directory with `statistics: full`, so that every candidate answered every selection
row. `search` has 200 rows, so the run needs as many. A text joins a candidate's answers to a row
and to later rows, up to the number of tokens.
"""

import argparse
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from benchmarks.gpu_search.workload import Workload
from modnorm import load_run
from modnorm.analysis.answers import AnswerFilter
from modnorm.analysis.parquet_files import read_answers
from modnorm.checkpoint.prompts import PromptEncoder
from modnorm.checkpoint.reference import resolve_checkpoint

Texts = np.ndarray[tuple[int, int, int], np.dtype[np.int16]]
"""Token ids: [candidates, rows, tokens]."""
_FIRST_ROW = 2000
"""Token that names row 0, beyond the bundled model's vocabulary."""
_STRIDE = 37
"""Rows between the answers that a text joins."""


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the command's options."""
    parser.add_argument("directory", type=Path)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--tokens", type=int, default=Workload().cap)


def run(options: argparse.Namespace) -> int:
    """Write the texts and print their number."""
    answers = selection_answers(options.directory, load_run(options.directory).spec.model.name)
    texts = join([list(rows.values()) for rows in answers], options.tokens)
    np.save(options.out, texts)
    print(f"{options.out}: texts of {len(texts)} candidates")
    return 0


def selection_answers(directory: Path, model: str) -> list[Mapping[int, Sequence[int]]]:
    """Return the tokens of the selection answers by row: the base's, then each candidate's."""
    encoder = PromptEncoder(resolve_checkpoint(model))
    answers: defaultdict[int, dict[int, Sequence[int]]] = defaultdict(dict)
    for answer in read_answers(directory, AnswerFilter(split="selection")):
        answers[answer.candidate][answer.row] = encoder.encode_text(answer.completion)
    return [dict(sorted(answers[candidate].items())) for candidate in sorted(answers)]


def join(answers: Sequence[Sequence[Sequence[int]]], tokens: int) -> Texts:
    """Return texts of so many tokens: a candidate's answers to a row and to later ones.

    The token after an answer names the next row, as a prompt before it would.

    Args:
        answers: Token ids by candidate and row; all candidates answered the same rows.
        tokens: Tokens of a text.
    """
    rows = len(answers[0])
    texts = np.zeros((len(answers), rows, tokens), dtype=np.int16)
    for candidate, given in enumerate(answers):
        for row in range(rows):
            joined, place = list[int](), row
            while len(joined) < tokens:
                joined += given[place % rows]
                place += _STRIDE
                joined.append(_FIRST_ROW + place % rows)
            texts[candidate, row] = joined[:tokens]
    return texts
