"""Specs that were submitted before and whose files changed since then."""

import json

import pytest

from modnorm.errors import ConflictError
from modnorm.tasks.gsm8k import Gsm8k
from modnorm.tasks.protocol import Message

SPLITS = ("selection", "heldout")


@pytest.fixture
def message(spec, tmp_path):
    """A spec whose rows are files under `tmp_path`."""
    for split in SPLITS:
        (tmp_path / f"{split}.jsonl").write_text(rows(split))
    return spec(**{f"task__{split}": str(tmp_path / f"{split}.jsonl") for split in SPLITS})


def rows(name, count=3):
    return "".join(
        json.dumps({"question": f"{name} {n}?", "answer": f"#### {n}"}) + "\n"
        for n in range(count)
    )


async def test_an_edited_file_of_rows_is_refused_by_its_field(start_lab, message, tmp_path):
    async with start_lab() as lab:
        created = await lab.create(message)
        assert (await lab.create(message)).id == created.id
        for split in SPLITS:
            (tmp_path / f"{split}.jsonl").write_text(rows(split, 4))
            async with lab.raises(ConflictError, f"task.{split}") as met:
                await lab.create(message)
            assert created.id in met.error.message
            (tmp_path / f"{split}.jsonl").write_text(rows(split))
        assert (await lab.create(message)).id == created.id
        assert (await lab.create(message, "another")).id != created.id


async def test_another_scorer_or_prompt_is_refused(start_lab, message, monkeypatch):
    async with start_lab() as lab:
        await lab.create(message)
        with monkeypatch.context() as patch:
            patch.setattr(Gsm8k, "messages", lambda *_: (Message("user", "Guess."),))
            async with lab.raises(ConflictError, "task"):
                await lab.create(message)
        monkeypatch.setattr(Gsm8k, "scorer", "gsm8k-v0")
        async with lab.raises(ConflictError, "task"):
            await lab.create(message)


async def test_a_file_that_is_gone_is_named(start_lab, message, tmp_path):
    async with start_lab() as lab:
        created = await lab.create(message)
        (tmp_path / "heldout.jsonl").unlink()
        async with lab.raises(ConflictError, "task.heldout.source") as met:
            await lab.create(message)
        assert created.id in met.error.message


async def test_after_a_cancellation_the_next_request_has_the_edited_rows(
    start_lab, message, tmp_path
):
    async with start_lab() as lab:
        created = await lab.create(message)
        await lab.cancel(created.id)
        (tmp_path / "heldout.jsonl").write_text(rows("heldout", 4))
        assert (await lab.create(message)).id == created.id
        assert (await lab.create(message, "next")).provenance.heldout_rows == 4


async def test_development_rows_are_compared(start_lab, spec, tmp_path):
    (tmp_path / "development.jsonl").write_text(rows("development"))
    development = {"source": str(tmp_path / "development.jsonl")}
    message = spec(
        method="mezo", population={"seed": 5}, iterative={"updates": 2, "development": development}
    )
    async with start_lab() as lab:
        created = await lab.create(message)
        assert (await lab.create(message)).id == created.id
        (tmp_path / "development.jsonl").write_text(rows("development", 4))
        async with lab.raises(ConflictError, "iterative.development"):
            await lab.create(message)
