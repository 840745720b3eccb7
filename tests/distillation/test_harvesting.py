"""Harvests with an engine that answers by its seeds: resumption, votes, wrong rows."""

import json
from contextlib import contextmanager
from types import SimpleNamespace

import pytest

from modnorm.distillation.harvesting import COUNTS, DATASET, Harvest, derived_seed
from modnorm.search.answers import Answer
from modnorm.spec import HarvestSpec
from modnorm.tasks import get_task

ROWS = [{"question": f"Say {row}.", "answer": str(row)} for row in range(4)]
EXPERTS = (5, 2, 7)


class Model:
    """A model whose experts answer all rows right, but the base only the first two."""

    def __init__(self):
        self.engine = self
        self.held = "base"
        self.asked: list[tuple[object, object]] = []

    @contextmanager
    def candidate(self, descriptor, _scale_map):
        self.held = descriptor
        yield descriptor
        self.held = "base"

    def ask(self, task, rows, name):
        return SimpleNamespace(task=task, rows=rows, name=name)

    def answers(self, asked, sampling=None, on_answer=lambda: None):
        self.asked.append((self.held, sampling and tuple(sampling.seeds)))
        for _ in asked.rows:
            on_answer()
        return tuple(
            Answer(
                row=row,
                completion=f"{self.held} says {row}",
                reward=1.0,
                vote=str(row),
                correct=self.held != "base" or row < 2,
                tokens=3,
                truncated=False,
            )
            for row in range(len(asked.rows))
        )


@pytest.fixture
def harvest(tmp_path):
    def make(number=1, **settings):
        experts = tuple(SimpleNamespace(index=one, descriptor=f"e{one}") for one in EXPERTS)
        ensemble = SimpleNamespace(experts=experts, ensemble_size=3, scale_map=None)
        place = tmp_path / str(number)
        place.mkdir(exist_ok=True)
        chosen = HarvestSpec(**{"samples": 2, "keep": 9, **settings})
        return Harvest(place, ensemble, get_task("gsm8k"), ROWS, chosen, 42, number)  # type: ignore[arg-type]

    return make


def lines_of(harvest):
    return [json.loads(line) for line in (harvest.place / DATASET).read_text().splitlines()]


def test_a_dataset_has_the_answers_with_their_experts(harvest):
    made, model, counted = harvest(), Model(), []
    made.answer(model, lambda *progress: counted.append(progress))
    assert made.write_dataset(None) == 3 * 4  # equal completions of an expert count once
    assert counted[-1] == (3 * 2 * 4, 3 * 2 * 4)
    counts = json.loads((made.place / COUNTS).read_text())
    assert (counts["answers"], counts["right"], counts["rows"]) == (24, 24, 4)
    assert counts["tokens"] == 24 * 3
    assert lines_of(made)[0]["expert"] == {"candidate": 5, "rank": 1, "sample": 0}
    seeds = [seed for _, row_seeds in model.asked for seed in row_seeds]  # type: ignore[attr-defined]
    assert len(set(seeds)) == len(seeds)
    assert seeds[0] == derived_seed("row", derived_seed("sample", 42, 0), 0)


def test_an_interrupted_harvest_asks_the_missing_experts_and_ends_in_the_same_bytes(harvest):
    whole, broken, model = harvest(), harvest(2), Model()
    whole.answer(model)
    broken.answer(Model())
    broken._file(2).unlink()
    assert broken.missing == [2]
    again = Model()
    broken.answer(again)
    assert again.asked == model.asked[2:4]
    for each in (whole, broken):
        each.write_dataset(None)
    assert [one | {"round": 1} for one in lines_of(broken)] == lines_of(whole)


def test_only_rows_count_that_the_searched_model_answers_wrongly(harvest):
    made, model = harvest(only_wrong=True), Model()
    made.answer(model)
    made.write_dataset(None)
    assert model.asked[0] == ("base", None)
    assert {line["row"] for line in lines_of(made)} == {2, 3}


def test_a_later_dataset_begins_with_the_earlier_one(harvest):
    first, second = harvest(keep=1), harvest(2, keep=2, temperature=0, samples=1)
    for each in (first, second):
        each.answer(Model())
    first.write_dataset(None)
    second.write_dataset(first.place / DATASET)
    lines = (second.place / DATASET).read_text().splitlines()
    assert lines[:4] == (first.place / DATASET).read_text().splitlines()
    assert len(lines) == 4 + 4  # the best answer of each row is there already
