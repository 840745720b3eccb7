"""Declared tasks: the text is stored with the experiment and sent with its jobs."""

import json

from modnorm.errors import InvalidInputError
from modnorm.tasks import get_task
from modnorm.wire.conversions import spec_from_proto

DECLARATION = """
name: questions
max_tokens: 8
columns: [question, answer]
prompt: {user: "{question}"}
answer: answer
extract: {regex: "#### (.*)"}
compare: number
"""


def declared(spec, tmp_path, declaration=DECLARATION, name="questions"):
    """Return a spec with rows for the synthetic workers."""
    for split in ("selection", "heldout"):
        rows = [{"question": f"{split} {n}?", "answer": str(n % 3)} for n in range(7)]
        path = tmp_path / f"{split}.jsonl"
        path.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    changes = {
        f"task__{split}": str(tmp_path / f"{split}.jsonl") for split in ("selection", "heldout")
    }
    message = spec(**changes, task__name=name)
    if declaration is not None:
        message.task.declaration = declaration
    return message


async def test_the_text_is_stored_and_goes_with_every_job(start_lab, spec, tmp_path):
    async with start_lab() as lab:
        created = await lab.create(declared(spec, tmp_path))
        assert created.spec.task.declaration == DECLARATION
        scorer = get_task("questions", declaration=DECLARATION).scorer
        assert created.provenance.scorer == scorer
        (listed,) = (await lab.list()).experiments
        assert spec_from_proto(listed.spec).task.declaration == DECLARATION
        job = await lab.worker().claim_next()
        assert (job.task, job.scorer, job.declaration) == ("questions", scorer, DECLARATION)


async def test_an_invalid_declaration_is_refused_before_anything_is_stored(
    start_lab, spec, tmp_path
):
    bad = {
        "task.declaration": {"declaration": DECLARATION.replace("max_tokens: 8", "max_tokens: x")},
        "task.name": {"name": "answers"},
        "task.scorer": {},
    }
    async with start_lab() as lab:
        for field, changes in bad.items():
            message = declared(spec, tmp_path, **changes)
            if field == "task.scorer":
                message.task.scorer = "reference"
            async with lab.raises(InvalidInputError, field):
                await lab.create(message)
        async with lab.raises(InvalidInputError, "task.name"):
            path = tmp_path / "my-task.yaml"
            path.write_text(DECLARATION)
            await lab.create(declared(spec, tmp_path, None, str(path)))
        async with lab.raises(InvalidInputError, "task.declaration"):
            await lab.create(declared(spec, tmp_path, "#" * 70_000))
        assert not (await lab.list()).experiments


async def test_pages_of_experiments_stay_small(start_lab, spec, tmp_path, monkeypatch):
    monkeypatch.setattr("modnorm.services.aggregator.api.experiment_servicer.PAGE_BYTES", 3000)
    async with start_lab() as lab:
        text = DECLARATION + "#" * 1200
        ids = [(await lab.create(declared(spec, tmp_path, text), f"r{n}")).id for n in range(3)]
        found, token, pages = [], "", 0
        while True:
            page = await lab.list(page_token=token)
            found += [each.id for each in page.experiments]
            token, pages = page.next_page_token, pages + 1
            if not token:
                break
        assert found == ids[::-1]
        assert pages > 1
