"""Acceptance of drafts on the recorded answers of a run, without a model.

    python -m benchmarks.draft_replay RUN [--tokens 8] [--sources 0 1 20] [--candidates 8]

Answers are decoded again in steps of one token and the accepted draft tokens. The drafts come from
the answers of so many earlier candidates, the base first, and from the answer itself. Prints
tokens a step, steps of the longest answer and rejected tokens for each accepted one, and the share
of accepted tokens by source and by position in the draft.
"""

import argparse
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from benchmarks.gpu_search.recorded_texts import selection_answers
from modnorm import load_run
from modnorm.engines.drafts.answer_table import Tokens
from modnorm.engines.drafts.matching import (
    CONTEXT,
    DraftRequest,
    Followed,
    best_match,
    followed_after,
)

Answers = Mapping[int, Tokens]
"""Tokens by row, each after `CONTEXT` tokens that stand for the prompt's end."""


@dataclass
class Savings:
    """What drafts saved."""

    steps: int = 0
    tokens: int = 0
    drafted: int = 0
    longest: list[int] = field(default_factory=list)
    """Steps of the longest answer of each candidate."""
    by_source: Counter[str] = field(default_factory=Counter)
    by_position: Counter[int] = field(default_factory=Counter)

    def add(self, source: str, drafted: int, accepted: int, *, at_end: bool) -> None:
        """Add a step; at the end of an answer no token follows the accepted ones."""
        self.steps += 1
        self.tokens += accepted + (not at_end)
        self.drafted += drafted
        self.by_source[source] += accepted
        self.by_position.update(range(1, accepted + 1))


def main() -> None:
    """Replay with each number of sources."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("directory", type=Path, help="run directory")
    parser.add_argument("--tokens", type=int, nargs="+", default=[8])
    parser.add_argument("--sources", type=int, nargs="+", default=[0, 1, 20])
    parser.add_argument("--candidates", type=int, default=8, help="replayed, the last of the run")
    options = parser.parse_args()
    answers = _read(options.directory)
    for count in options.tokens:
        for sources in options.sources:
            _print(count, sources, _replay(answers, sources, count, options.candidates))


def _read(directory: Path) -> list[Answers]:
    """Return the selection answers of the base and of the candidates, in their order."""
    marks = [-1 - place for place in range(CONTEXT)]
    return [
        {row: np.array([*marks, *ids], dtype=np.int32) for row, ids in rows.items()}
        for rows in selection_answers(directory, load_run(directory).spec.model.name)
    ]


def _replay(answers: Sequence[Answers], sources: int, count: int, candidates: int) -> Savings:
    figures = Savings()
    for number in range(max(1, len(answers) - candidates), len(answers)):
        earlier = answers[max(0, number - sources) : number] if sources > 1 else answers[:sources]
        steps = []
        for row, answer in answers[number].items():
            before = figures.steps
            kept = [one[row] for one in reversed(earlier) if row in one]
            _decode(answer, kept, count, figures)
            steps.append(figures.steps - before)
        figures.longest.append(max(steps))
    return figures


def _decode(answer: Tokens, sources: Sequence[Tokens], count: int, figures: Savings) -> None:
    place = CONTEXT
    figures.add("none", 0, 0, at_end=False)  # the prompt's step
    place, followed = place + 1, Followed()
    while place < len(answer):
        pending = DraftRequest(0, answer[:place], CONTEXT, followed)
        found = best_match(sources, pending.text, CONTEXT, followed)
        followed = followed_after(found, pending, len(sources))
        is_own = found.source == len(sources)
        source = answer[:place] if is_own else sources[found.source]
        draft = source[found.place : found.place + count] if found.equal else answer[:0]
        rest = answer[place : place + len(draft)]
        wrong = np.flatnonzero(draft[: len(rest)] != rest)
        accepted = int(wrong[0]) if len(wrong) else len(rest)
        at_end = place + accepted == len(answer)
        figures.add("itself" if is_own else "others", len(draft), accepted, at_end=at_end)
        place += accepted + 1


def _print(count: int, sources: int, figures: Savings) -> None:
    accepted = sum(figures.by_source.values())
    shares = {
        name: round(value / accepted, 3) for name, value in figures.by_source.items() if value
    }
    positions = [round(figures.by_position[one] / figures.steps, 2) for one in range(1, count + 1)]
    print(
        f"drafts of {count}, {sources} other answers: {figures.tokens / figures.steps:.2f} tokens "
        f"a step, {np.mean(figures.longest):.0f} steps for the longest answer, "
        f"{(figures.drafted - accepted) / accepted:.2f} rejected for each accepted; "
        f"accepted by source {shares}, by position {positions}",
        flush=True,
    )


if __name__ == "__main__":
    main()
