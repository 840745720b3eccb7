"""An exported candidate, loaded by transformers alone."""

import json
from typing import Any

import torch
from transformers import AutoModelForCausalLM, PreTrainedTokenizerFast

from modnorm import load_run
from modnorm.tasks import get_stored_task


def test_an_export_answers_in_transformers_as_the_run_did(modnorm, finished, tmp_path):
    """Sums of floats differ in their order, so a near tie may be decided otherwise."""
    modnorm("export", finished, "--rank", 1, "--out", tmp_path / "best")
    run = load_run(finished)
    spec, (expert,) = run.spec, run.ensemble(4, 1).experts
    task = get_stored_task(spec.task.name, scorer=None, declaration=None)
    tokenizer = PreTrainedTokenizerFast.from_pretrained(tmp_path / "best")
    model: Any = AutoModelForCausalLM.from_pretrained(tmp_path / "best", dtype=torch.float32)
    equal = []
    for answer in run.answers(expert, "heldout"):
        row = json.loads(run.rows("heldout")[answer.row])
        messages = [
            {"role": turn.role, "content": turn.content} for turn in task.messages(task.parse(row))
        ]
        prompt = tokenizer.apply_chat_template(
            messages, add_generation_prompt=True, tokenize=False
        )
        asked = tokenizer(str(prompt), add_special_tokens=False, return_tensors="pt").input_ids
        tokens = model.generate(asked, max_new_tokens=spec.task.max_tokens, do_sample=False)
        completion = tokens[0, asked.shape[1] :]
        equal.append(tokenizer.decode(completion, skip_special_tokens=True) == answer.completion)
    assert len(equal) > 1
    assert sum(equal) >= len(equal) - 1
