"""A harvest: the experts of a finished search answer training rows, and right answers stay.

The answers of each expert are a file, written when it is complete. So an interrupted harvest asks
only the experts whose files are missing. The files are removed once the dataset is written.
"""

import hashlib
import json
import shutil
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from modnorm.distillation.answering import AnsweringModel, AskedRows
from modnorm.distillation.examples import (
    HarvestedAnswer,
    choose_examples,
    encode_examples,
    merged_lines,
    rows_of,
)
from modnorm.engines import Sampling
from modnorm.files import encode_json, replaced_file, write_file
from modnorm.prediction.ensemble_definition import EnsembleDefinition
from modnorm.prediction.ranked_votes import OnProgress, ignore_progress
from modnorm.search.voting import Answer, Ballot, count_votes
from modnorm.spec import HarvestSpec
from modnorm.spec_limits import MAX_SEED
from modnorm.tasks import Row, Task


def round_seed(population_seed: int, round_number: int) -> int:
    """Return the seed of a round's population: that of the spec in the first round."""
    if round_number <= 1:
        return population_seed
    return _seed(f"population/{population_seed}/{round_number}")


def training_seed(population_seed: int, round_number: int) -> int:
    """Return the seed of a round's training."""
    return _seed(f"training/{population_seed}/{round_number}")


def harvest_seed(population_seed: int, round_number: int) -> int:
    """Return the seed of a round's answers."""
    return _seed(f"harvest/{population_seed}/{round_number}")


def sample_seed(seed: int, index: int) -> int:
    """Return the seed of one answer of one expert to all rows."""
    return _seed(f"sample/{seed}/{index}")


def row_seed(seed: int, row: int) -> int:
    """Return the seed of one completion, from that of its sample and the index of its row."""
    return _seed(f"row/{seed}/{row}")


def _seed(text: str) -> int:
    """Return a hash: runs of neighbouring seeds share no randomness."""
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big") & MAX_SEED


DATASET, COUNTS = "dataset.jsonl", "harvest.json"
"""The examples, and the counts of the harvest, which are written last."""
_ANSWERS = "harvest"
_BASE = 0
"""Number of the file with greedy answers of the searched model; experts count from 1."""


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
        counts = dict.fromkeys(("answers", "right", "rows", "examples", "dataset_examples"), 0)
        counts["tokens"] = 0
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
        examples = choose_examples(
            self._harvested(),
            votes,
            round_number=self.round_number,
            keep=self.settings.keep,
            rows=wrong,
        )
        lines = encode_examples(examples, lambda row: self.task.messages(self.rows[row]))
        before = earlier.read_text(encoding="utf-8").split("\n")[:-1] if earlier else []
        whole = merged_lines(before, lines)
        counts["rows"], counts["examples"] = len(rows_of(examples)), len(examples)
        counts["dataset_examples"] = len(whole)
        write_file(self.place / DATASET, "".join(f"{line}\n" for line in whole).encode())
        write_file(self.place / COUNTS, encode_json(counts))
        shutil.rmtree(self.place / _ANSWERS)
        return len(whole)

    def _sampling(self, rank: int, sample: int, asked: AskedRows) -> Sampling | None:
        if not self.settings.temperature:
            return None
        seed = sample_seed(self.seed, (rank - 1) * self.settings.samples + sample)
        seeds = [row_seed(seed, row) for row in range(len(asked.rows))]
        return Sampling(self.settings.temperature, seeds, self.settings.top_p)

    def _harvested(self) -> Iterator[HarvestedAnswer]:
        for rank, sample, sheet in self._sheets():
            for answer in sheet:
                yield HarvestedAnswer(
                    row=answer.row,
                    completion=answer.completion,
                    vote=answer.vote,
                    correct=answer.correct,
                    tokens=answer.tokens,
                    truncated=answer.truncated,
                    candidate=self.ensemble.experts[rank - 1].index,
                    rank=rank,
                    sample=sample,
                )

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
