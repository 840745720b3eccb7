"""Trains a model of 105 million parameters on long worked answers, in minutes on one GPU.

    python -m benchmarks.worked_answers.train FOLDER [--minutes 5] [--size 100m]
        [--puzzles 0.6] [--events 9 18]

FOLDER gets `model/`, a checkpoint in the architecture of Qwen2 with the bundled tokenizer, and
rows of each task: `countdown-selection.jsonl`, `gsm8k-heldout.jsonl` and so on. Their seed differs
from those of the training examples. The learning rate follows the time, so the training ends with
its cosine after the given minutes. `--puzzles 0 --events 3 6` leaves short word problems, which a
model learns in a few minutes.
"""

import argparse
import json
import math
import shutil
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch

from benchmarks.gpu_search.random_model import TEMPLATE, bundled_config
from benchmarks.worked_answers.texts import EVENTS, PUZZLES, TASKS, Worked, examples, rows
from modnorm.checkpoint.prompts import PromptEncoder
from modnorm.checkpoint.reference import resolve_checkpoint
from modnorm.tasks import get_task

if TYPE_CHECKING:
    from transformers import Qwen2ForCausalLM

SIZES: Mapping[str, Mapping[str, int]] = {
    "100m": {
        "hidden_size": 768,
        "intermediate_size": 3072,
        "num_attention_heads": 12,
        "num_key_value_heads": 4,
        "num_hidden_layers": 12,
    },
    # For trials without a GPU.
    "tiny": {
        "hidden_size": 128,
        "intermediate_size": 320,
        "num_attention_heads": 2,
        "num_key_value_heads": 1,
        "num_hidden_layers": 2,
    },
}
LENGTH = 2048
"""Tokens of a packed row, at least those of the longest prompt and answer."""
WARM_UP = 0.03
"""Part of the time in which the learning rate rises."""
SPLITS = {"selection": 200, "development": 200, "heldout": 500}
"""Rows of each split."""
_ROWS_SEED = 1
_FIRST_SEED = 1000
"""Seed of the first training examples."""
_NO_TARGET = -100
_PIECE = 500
"""Examples that a process makes at a time."""


def main() -> None:
    """Train, and write the checkpoint and the rows."""
    options = _options()
    began = time.monotonic()
    options.folder.mkdir(parents=True, exist_ok=True)
    events = tuple(options.events)
    write_rows(options.folder, events)
    make = partial(examples, count=_PIECE, share=options.puzzles, events=events)
    tokens, targets = packed(make, options.examples, options.processes)
    print(f"{tokens.numel():,} tokens in {time.monotonic() - began:.0f} s", flush=True)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    model = make_model(options.size, device)
    print(f"{sum(one.numel() for one in model.parameters()):,} parameters", flush=True)
    train(model, tokens, targets, options)
    save(model, options.folder / "model", options.size)
    print(f"{options.folder / 'model'} after {time.monotonic() - began:.0f} s", flush=True)


def write_rows(folder: Path, events: tuple[int, int] = EVENTS) -> None:
    """Write the rows of all splits."""
    for task in TASKS:
        left = iter(rows(task, _ROWS_SEED, sum(SPLITS.values()), events))
        for split, count in SPLITS.items():
            lines = [json.dumps(row) for row in islice(left, count)]
            (folder / f"{task}-{split}.jsonl").write_text("\n".join(lines) + "\n")


def packed(
    make: Callable[[int], Sequence[Worked]], count: int, processes: int
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return packed rows of tokens and of targets, int16 [rows, LENGTH].

    Prompts have no targets. A row holds whole examples, which may attend to earlier ones.

    Args:
        make: Returns `_PIECE` examples by a seed.
        count: Number of examples.
        processes: Processes that make them.
    """
    seeds = range(_FIRST_SEED, _FIRST_SEED + -(-count // _PIECE))
    with ProcessPoolExecutor(processes) as pool:
        pieces = list(pool.map(partial(_packed_piece, make), seeds))
    tokens, targets = (np.concatenate(part) for part in zip(*pieces, strict=True))
    return torch.from_numpy(tokens), torch.from_numpy(targets)


Rows = np.ndarray[tuple[int, int], np.dtype[np.int16]]


def _packed_piece(make: Callable[[int], Sequence[Worked]], seed: int) -> tuple[Rows, Rows]:
    filled: list[tuple[list[int], list[int]]] = []
    for prompt, answer in _encoded(make(seed)):
        size = len(prompt) + len(answer)
        if not filled or len(filled[-1][0]) + size > LENGTH:
            filled.append(([], []))
        filled[-1][0].extend([*prompt, *answer])
        filled[-1][1].extend([*[_NO_TARGET] * len(prompt), *answer])
    tokens = np.zeros((len(filled), LENGTH), dtype=np.int16)
    targets = np.full((len(filled), LENGTH), _NO_TARGET, dtype=np.int16)
    for place, (ids, wanted) in enumerate(filled):
        tokens[place, : len(ids)], targets[place, : len(wanted)] = ids, wanted
    return tokens, targets


def _encoded(examples: Sequence[Worked]) -> Iterator[tuple[list[int], list[int]]]:
    """Yield the tokens of prompts, as engines ask them, and of answers with their stop token."""
    encoder = PromptEncoder(resolve_checkpoint(TEMPLATE))
    for one in examples:
        task = get_task(one.task)
        prompt = encoder.encode(task.messages(task.parse(one.row)))
        answer = [*encoder.encode_text(one.answer), encoder.end_id]
        if len(prompt) + len(answer) <= LENGTH:
            yield prompt, answer


def make_model(size: str, device: torch.device) -> "Qwen2ForCausalLM":
    """Return a model with random weights in float32 on a device."""
    from transformers import Qwen2Config, Qwen2ForCausalLM  # noqa: PLC0415 - slow to import

    torch.manual_seed(0)
    with device:
        return Qwen2ForCausalLM(Qwen2Config.from_dict(bundled_config(SIZES[size])))


def train(
    model: "Qwen2ForCausalLM",
    tokens: torch.Tensor,
    targets: torch.Tensor,
    options: argparse.Namespace,
) -> None:
    """Train for the given minutes."""
    device, seconds = model.device, 60 * options.minutes
    torch.set_float32_matmul_precision("high")
    matrices = [one for one in model.parameters() if one.ndim > 1]
    others = [one for one in model.parameters() if one.ndim == 1]
    groups = [
        {"params": matrices, "weight_decay": 0.1},
        {"params": others, "weight_decay": 0.0},
    ]
    optimiser = torch.optim.AdamW(groups, betas=(0.9, 0.95), fused=device.type == "cuda")
    model.train()
    began = time.monotonic()
    for step, batch in enumerate(_batches(len(tokens), options.batch)):
        passed = (time.monotonic() - began) / seconds
        if passed >= 1:
            break
        for group in optimiser.param_groups:
            group["lr"] = options.rate * _schedule(passed)
        loss = _loss(model, tokens[batch].to(device), targets[batch].to(device))
        optimiser.zero_grad()
        torch.autograd.backward(loss)
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimiser.step()
        if step % 50 == 0:
            seen = (step + 1) * options.batch * LENGTH
            print(f"step {step}, {seen:,} tokens, {100 * passed:.0f} %, loss {loss.item():.4f}",
                  flush=True)  # fmt: skip


def _schedule(passed: float) -> float:
    """Return the learning rate's factor after a part of the time: a rise, then a cosine."""
    if passed < WARM_UP:
        return passed / WARM_UP
    return 0.02 + 0.49 * (1 + math.cos(math.pi * (passed - WARM_UP) / (1 - WARM_UP)))


def _batches(rows: int, size: int) -> Iterator[torch.Tensor]:
    """Yield batches of row numbers without end, each row once an epoch."""
    generator = torch.Generator().manual_seed(1)
    while True:
        order = torch.randperm(rows, generator=generator)
        for first in range(0, max(1, rows - size + 1), size):
            yield order[first : first + size]


def _loss(model: "Qwen2ForCausalLM", tokens: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    with torch.autocast(tokens.device.type, dtype=torch.bfloat16):
        logits = model(input_ids=tokens.long(), use_cache=False).logits
    return torch.nn.functional.cross_entropy(
        logits[:, :-1].float().flatten(0, 1),
        targets[:, 1:].long().flatten(),
        ignore_index=_NO_TARGET,
    )


def save(model: "Qwen2ForCausalLM", folder: Path, size: str) -> None:
    """Write the checkpoint in bfloat16, with the bundled tokenizer."""
    template = resolve_checkpoint(TEMPLATE).directory
    model.eval().to(torch.bfloat16).save_pretrained(folder)
    for name in ("tokenizer.json", "tokenizer_config.json", "chat_template.jinja",
                 "generation_config.json"):  # fmt: skip
        shutil.copy(template / name, folder / name)
    (folder / "config.json").write_text(json.dumps(bundled_config(SIZES[size])))


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path)
    parser.add_argument("--minutes", type=float, default=5.0)
    parser.add_argument("--size", choices=sorted(SIZES), default="100m")
    parser.add_argument("--examples", type=int, default=120_000)
    parser.add_argument("--puzzles", type=float, default=PUZZLES, help="share of puzzles")
    parser.add_argument("--events", type=int, nargs=2, default=EVENTS, help="of a word problem")
    parser.add_argument("--batch", type=int, default=32, help="packed rows of a step")
    parser.add_argument("--rate", type=float, default=8e-4, help="highest learning rate")
    parser.add_argument("--processes", type=int, default=12, help="that make examples")
    return parser.parse_args()


if __name__ == "__main__":
    main()
