"""Gaps between the two greatest logits where two answers of a candidate first differ.

A run stores the text and the number of tokens of an answer, not its tokens. The text is encoded
again. Its tokens are the generated ones only if the model wrote the text as its tokenizer would.
"""

from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from pathlib import Path

import torch

from modnorm.analysis.answers import BASE_INDEX, AnswerRecord
from modnorm.analysis.descriptors import read_descriptors
from modnorm.checkpoint.pretrained import best_device
from modnorm.checkpoint.prompts import PromptEncoder
from modnorm.checkpoint.reference import resolve_checkpoint
from modnorm.checkpoint.weights import CheckpointWeights
from modnorm.geometry.scale_map import ScaleMap
from modnorm.spec import ExperimentSpec
from modnorm.tasks import get_task
from modnorm.tasks.row_loading import load_rows
from verification.candidate_logits import CandidateLogits, common_length

Key = tuple[int, str, int]
"""Candidate, split and row of an answer."""
Answers = Mapping[Key, AnswerRecord]


def gaps(
    spec: ExperimentSpec, directory: Path, keys: Sequence[Key], said: tuple[Answers, Answers]
) -> Iterator[dict[str, object]]:
    """Yield the first difference of pairs of answers and what the candidate's logits say of it.

    A line has the place of the first different token, the greatest logit and the gap to the
    second. `below` says how far below the greatest the tokens of both answers are, in units of
    logits. On a GPU the model computes in the checkpoint's dtype, else in float32.
    `float32_below` has the same distances in float32. Where these differ much from `below`,
    rounding alone moves logits so far. If an answer had other tokens than its text has now, the
    place is unknown: the line has `place` null and no logits.

    Args:
        spec: The spec of a run.
        directory: Its directory.
        keys: The answers, sorted.
        said: The answers of two runs.
    """
    checkpoint = resolve_checkpoint(spec.model.name)
    encoder, device = PromptEncoder(checkpoint), best_device()
    exact = CandidateLogits(checkpoint, torch.float32, device)
    stored = CheckpointWeights(checkpoint).dtype
    models = (
        [CandidateLogits(checkpoint, stored, device), exact] if device.type == "cuda" else [exact]
    )
    descriptors = dict(read_descriptors(directory))
    scale_map = ScaleMap.from_json((directory / "scale_map.json").read_text())
    prompts = {split: _prompts(spec, split, encoder) for split in {key[1] for key in keys}}
    for candidate, group in groupby(keys, key=lambda key: key[0]):
        for model in models:
            model.become(None if candidate == BASE_INDEX else (descriptors[candidate], scale_map))
        for key in group:
            first, second = (_tokens(answers[key], encoder) for answers in said)
            if first is None or second is None:
                yield {"answer": list(key), "place": None}
                continue
            common = common_length(first, second)
            before = [*prompts[key[1]][key[2]], *first[:common]]
            parted = first[common], second[common]
            yield {"answer": list(key), "place": common, **_about(models, before, parted)}


def _tokens(answer: AnswerRecord, encoder: PromptEncoder) -> list[int] | None:
    """Return the tokens of an answer; None if the model spelled its text with others."""
    end = [] if answer.truncated else [encoder.end_id]
    tokens = [*encoder.encode_text(answer.completion), *end]
    return tokens if len(tokens) == answer.tokens else None


def _about(
    models: Sequence[CandidateLogits], before: Sequence[int], parted: tuple[int, int]
) -> dict[str, object]:
    """Return what the logits after tokens say of two tokens that followed."""
    logits = models[0].after(before)
    top, second = logits.topk(2).values.tolist()
    return {
        "gap": top - second,
        "logit": top,
        "below": _below(logits, parted),
        "float32_below": _below(models[-1].after(before), parted),
    }


def _below(logits: torch.Tensor, tokens: Sequence[int]) -> list[float]:
    return [float(logits.max() - logits[token]) for token in tokens]


def _prompts(spec: ExperimentSpec, split: str, encoder: PromptEncoder) -> list[Sequence[int]]:
    task = get_task(spec.task.name)
    rows = load_rows(task, getattr(spec.task, split), field=split)
    return [encoder.encode(task.messages(row)) for row in rows]
