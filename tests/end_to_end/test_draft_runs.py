"""The comparison of runs with and without drafts, on copies of one finished run."""

import json
import shutil
from argparse import Namespace
from dataclasses import replace
from typing import Any

import pytest
import torch
from transformers import AutoModelForCausalLM

from benchmarks.draft_runs import compare
from modnorm.analysis.parquet_files import read_answers, write_answers
from modnorm.checkpoint.prompts import PromptEncoder
from modnorm.checkpoint.reference import resolve_checkpoint
from modnorm.tasks import get_task

BASE, CANDIDATE = (-1, "selection", 0), (3, "selection", 2)


@pytest.fixture
def options(finished, tmp_path):
    """The options of runs of which both are copies of the undisturbed one."""
    for name in ("none", "population-modular_norm"):
        shutil.copytree(finished, tmp_path / name)
    for split in ("selection", "heldout"):
        shutil.copy(finished / "rows" / f"{split}.jsonl", tmp_path / f"gsm8k-{split}.jsonl")
    return Namespace(
        out=tmp_path,
        rows=tmp_path,
        model="tiny-thicket",
        task="gsm8k",
        methods=["modular_norm"],
        population=6,
        experts=2,
        selection=8,
        heldout=8,
        max_tokens=24,
        engine="transformers",
    )


def test_equal_runs_do_not_differ(options):
    line: dict[str, Any] = compare(options, "modular_norm", 1.28)
    assert line["answers"] == len(list(read_answers(options.out / "none")))
    assert line["votes"]
    assert [line[f"different_{what}"] for what in ("answers", "scores", "votes")] == [0, 0, 0]
    assert line["gaps"] == []


def test_different_answers_are_traced_to_the_gap_of_their_logits(options):
    drafted = options.out / "population-modular_norm"
    changed = [
        replace(each, completion="", tokens=1, truncated=False)
        if (each.candidate, each.split, each.row) in {BASE, CANDIDATE}
        else each
        for each in read_answers(drafted)
    ]
    write_answers(drafted, changed)
    line: dict[str, Any] = compare(options, "modular_norm", 1.28)
    assert line["different_answers"] == 2
    base, candidate = line["gaps"]
    assert [base["answer"], candidate["answer"]] == [list(BASE), list(CANDIDATE)]
    assert base["place"] == candidate["place"] == 0
    row = (options.out / "gsm8k-selection.jsonl").read_text().splitlines()[0]
    first, second = greatest_logits(json.loads(row))
    assert base["logit"] == pytest.approx(first, abs=1e-3)
    assert base["gap"] == pytest.approx(first - second, abs=1e-3)
    assert base["below"][0] == 0
    assert base["below"][1] > 0
    assert base["float32_below"] == base["below"]
    assert candidate["gap"] >= 0
    assert candidate["logit"] != base["logit"]


def test_an_answer_whose_text_has_other_tokens_now_is_not_traced(options):
    drafted = options.out / "population-modular_norm"
    changed = [
        replace(each, completion="other", tokens=each.tokens + 40)
        if (each.candidate, each.split, each.row) == BASE
        else each
        for each in read_answers(drafted)
    ]
    write_answers(drafted, changed)
    line: dict[str, Any] = compare(options, "modular_norm", 1.28)
    assert line["gaps"] == [{"answer": list(BASE), "place": None}]


def greatest_logits(row):
    """Return the two greatest logits of the base after the prompt of a row."""
    checkpoint = resolve_checkpoint("tiny-thicket")
    model = AutoModelForCausalLM.from_pretrained(checkpoint.directory, dtype=torch.float32)
    messages = get_task("gsm8k").messages(row)
    with torch.inference_mode():
        logits = model(torch.tensor([PromptEncoder(checkpoint).encode(messages)])).logits
    return logits[0, -1].topk(2).values.tolist()
