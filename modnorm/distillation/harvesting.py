"""A harvest: the experts of a finished search answer training rows, and right answers stay.

The answers of each expert are a file, written when it is complete. So an interrupted harvest asks
only the experts whose files are missing. The files are removed once the dataset is written: JSON
lines in TRL's format (`prompt` and `completion`) with the provenance of each answer.
"""

import hashlib
import json
import shutil
from bisect import insort
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from modnorm.distillation.answering import AnsweringModel
from modnorm.engines import Sampling
from modnorm.files import encode_json, replaced_file, write_file
from modnorm.prediction.ensemble_definition import EnsembleDefinition
from modnorm.prediction.ranked_votes import OnProgress, ignore_progress
from modnorm.search.answers import Answer
from modnorm.search.scoring import PromptedRows
from modnorm.search.voting import Ballot, count_votes
from modnorm.spec import HarvestSpec
from modnorm.spec_limits import MAX_SEED
from modnorm.tasks import Row, Task
from modnorm.tasks.protocol import Message

DATASET, COUNTS = "dataset.jsonl", "harvest.json"
"""The examples, and the counts of the harvest, which are written last."""
_ANSWERS = "harvest"
_BASE = 0
"""Number of the file with greedy answers of the searched model; experts count from 1."""


def derived_seed(kind: str, seed: int, number: int) -> int:
    """Return a hash of a seed and a number: runs of neighbouring seeds share no randomness."""
    digest = hashlib.sha256(f"{kind}/{seed}/{number}".encode()).digest()
    return int.from_bytes(digest[:8], "big") & MAX_SEED


@dataclass(frozen=True, slots=True)
class HarvestedAnswer:
    """One answer of an expert to a training row."""

    answer: Answer
    candidate: int
    """Index of the expert in its population."""
    rank: int
    """Rank of the expert by selection, from 1."""
    sample: int
    """Number of the answer among those of this expert to this row, from 0."""


def choose_examples(
    answers: Iterable[HarvestedAnswer],
    votes: Sequence[str | None],
    *,
    keep: int,
    rows: Collection[int] | None = None,
) -> list[HarvestedAnswer]:
    """Return the examples of a harvest, by row, the best `keep` of each row first.

    Only complete right answers count. Equal completions of a row are one example, that of the
    best-ranked expert. Answers that agree with the vote come first, then shorter ones, as in
    iterative RandOpt (sunrainyg/RandOpt, `rejection.py`).
    """
    best: dict[int, list[HarvestedAnswer]] = {}
    seen: set[int] = set()
    for each in answers:
        answer = each.answer
        if not answer.correct or answer.truncated or (rows is not None and answer.row not in rows):
            continue
        key = hash((answer.row, answer.completion.strip()))  # the texts would fill the memory
        if key not in seen:
            seen.add(key)
            kept = best.setdefault(answer.row, [])
            insort(
                kept,
                each,
                key=lambda one: (
                    one.answer.vote != votes[one.answer.row],
                    one.answer.tokens,
                    one.rank,
                    one.sample,
                ),
            )
            del kept[keep:]
    return [example for row in sorted(best) for example in best[row]]


def encode_examples(
    examples: Iterable[HarvestedAnswer],
    votes: Sequence[str | None],
    round_number: int,
    prompt_of: Callable[[int], Sequence[Message]],
) -> list[str]:
    """Return each example as one line of JSON."""
    return [
        json.dumps(
            {
                "prompt": [
                    {"role": turn.role, "content": turn.content}
                    for turn in prompt_of(each.answer.row)
                ],
                "completion": [{"role": "assistant", "content": each.answer.completion}],
                "row": each.answer.row,
                "answer": each.answer.vote,
                "vote": votes[each.answer.row],
                "agrees": each.answer.vote == votes[each.answer.row],
                "tokens": each.answer.tokens,
                "round": round_number,
                "expert": {"candidate": each.candidate, "rank": each.rank, "sample": each.sample},
            },
            ensure_ascii=False,
            separators=(",", ":"),
            allow_nan=False,
        )
        for each in examples
    ]


def merged_lines(earlier: Sequence[str], later: Sequence[str]) -> list[str]:
    """Return the lines of two datasets, without those of `later` that repeat an answer."""

    def identity(line: str) -> tuple[int, str]:
        content = json.loads(line)
        return content["row"], content["completion"][0]["content"].strip()

    known = set(map(identity, earlier))
    return [*earlier, *(line for line in later if identity(line) not in known)]


@dataclass(frozen=True, slots=True)
class Harvest:
    """The harvest of one round, in the directory of its search."""

    place: Path
    ensemble: EnsembleDefinition
    """The experts."""
    task: Task
    rows: Sequence[Row]
    """Training rows."""
    settings: HarvestSpec
    seed: int
    """Seed of its answers."""
    round_number: int

    @property
    def missing(self) -> Sequence[int]:
        """Ranks of the experts whose answers are not written, 0 for the searched model."""
        first = _BASE if self.settings.only_wrong else 1
        ranks = range(first, self.ensemble.ensemble_size + 1)
        return [rank for rank in ranks if not self._file(rank).exists()]

    def answer(self, model: AnsweringModel, on_progress: OnProgress = ignore_progress) -> None:
        """Write the answers that are missing."""
        asked, done = model.ask(self.task, self.rows, "training row"), 0
        asking = [rank for rank in self.missing if rank != _BASE]
        total = len(asking) * self.settings.samples * len(self.rows)

        def count() -> None:
            nonlocal done
            done += 1
            on_progress(done, total)

        for rank in self.missing:
            if rank == _BASE:
                self._write(rank, [model.answers(asked)])
                continue
            expert = self.ensemble.experts[rank - 1]
            with model.engine.candidate(expert.descriptor, self.ensemble.scale_map):
                sheets = (
                    model.answers(asked, self._sampling(rank, sample, asked), count)
                    for sample in range(self.settings.samples)
                )
                self._write(rank, sheets)

    def write_dataset(self, earlier: Path | None) -> int:
        """Write the dataset and the counts; return the number of examples."""
        counts = dict.fromkeys(("answers", "right", "tokens"), 0)
        ballots = []
        for _, _, sheet in self._sheets():
            counts["answers"] += len(sheet)
            counts["right"] += sum(answer.correct for answer in sheet)
            counts["tokens"] += sum(answer.tokens for answer in sheet)
            ballots.append(Ballot.from_answers(sheet))
        votes = [vote.answer for vote in count_votes(ballots)]
        ballots.clear()
        wrong = None
        if self.settings.only_wrong:
            (greedy,) = self._read(_BASE)
            counts["tokens"] += sum(answer.tokens for answer in greedy)
            wrong = {answer.row for answer in greedy if not answer.correct}
        harvested = (
            HarvestedAnswer(answer, self.ensemble.experts[rank - 1].index, rank, sample)
            for rank, sample, sheet in self._sheets()
            for answer in sheet
        )
        examples = choose_examples(harvested, votes, keep=self.settings.keep, rows=wrong)
        lines = encode_examples(
            examples, votes, self.round_number, lambda row: self.task.messages(self.rows[row])
        )
        before = earlier.read_text(encoding="utf-8").split("\n")[:-1] if earlier else []
        whole = merged_lines(before, lines)
        counts["rows"] = len({each.answer.row for each in examples})
        counts["examples"], counts["dataset_examples"] = len(examples), len(whole)
        write_file(self.place / DATASET, "".join(f"{line}\n" for line in whole).encode())
        write_file(self.place / COUNTS, encode_json(counts))
        shutil.rmtree(self.place / _ANSWERS)
        return len(whole)

    def _sampling(self, rank: int, sample: int, asked: PromptedRows) -> Sampling | None:
        if not self.settings.temperature:
            return None
        number = (rank - 1) * self.settings.samples + sample
        seed = derived_seed("sample", self.seed, number)
        seeds = [derived_seed("row", seed, row) for row in range(len(asked.rows))]
        return Sampling(self.settings.temperature, seeds, self.settings.top_p)

    def _sheets(self) -> Iterator[tuple[int, int, Sequence[Answer]]]:
        """Yield rank, sample and answers, in the order of the ranks, as votes need them."""
        for rank in range(1, self.ensemble.ensemble_size + 1):
            for sample, sheet in enumerate(self._read(rank)):
                yield rank, sample, sheet

    def _file(self, rank: int) -> Path:
        return self.place / _ANSWERS / f"{rank}.jsonl"

    def _write(self, rank: int, sheets: Iterable[Sequence[Answer]]) -> None:
        """Write a line of JSON for each sample."""
        self._file(rank).parent.mkdir(exist_ok=True)
        with replaced_file(self._file(rank)) as file:
            for sheet in sheets:
                file.write(json.dumps([asdict(answer) for answer in sheet]).encode() + b"\n")

    def _read(self, rank: int) -> Iterator[Sequence[Answer]]:
        with self._file(rank).open(encoding="utf-8") as lines:
            for line in lines:
                yield [Answer(**answer) for answer in json.loads(line)]
