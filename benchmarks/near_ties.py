"""Gaps between the two greatest logits where two answers of a candidate first differ."""

from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from pathlib import Path

import torch

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

BASE = -1
Key = tuple[int, str, int]
"""Candidate, split and row of an answer."""
Answers = Mapping[Key, str]


def gaps(
    spec: ExperimentSpec, directory: Path, keys: Sequence[Key], said: tuple[Answers, Answers]
) -> Iterator[dict[str, object]]:
    """Yield the first difference of pairs of answers and the gap of the candidate's logits there.

    The model computes in the checkpoint's dtype on a GPU, else in float32. Gap and greatest logit
    are in units of logits.

    Args:
        spec: The spec of a run.
        directory: Its directory.
        keys: The answers, sorted.
        said: Their texts in two runs.
    """
    checkpoint = resolve_checkpoint(spec.model.name)
    encoder, device = PromptEncoder(checkpoint), best_device()
    on_gpu = device.type == "cuda"
    dtype = CheckpointWeights(checkpoint).dtype if on_gpu else torch.float32
    logits = CandidateLogits(checkpoint, dtype, device)
    descriptors = dict(read_descriptors(directory))
    scale_map = ScaleMap.from_json((directory / "scale_map.json").read_text())
    prompts = {split: _prompts(spec, split, encoder) for split in {key[1] for key in keys}}
    for candidate, group in groupby(keys, key=lambda key: key[0]):
        logits.become(None if candidate == BASE else (descriptors[candidate], scale_map))
        for key in group:
            first, second = (encoder.encode_text(texts[key]) for texts in said)
            common = common_length(first, second)
            place = [*prompts[key[1]][key[2]], *first[:common]]
            top = logits.after(place).topk(2).values.tolist()
            yield {"answer": list(key), "place": common, "gap": top[0] - top[1], "logit": top[0]}


def _prompts(spec: ExperimentSpec, split: str, encoder: PromptEncoder) -> list[Sequence[int]]:
    task = get_task(spec.task.name)
    rows = load_rows(task, getattr(spec.task, split), field=split)
    return [encoder.encode(task.messages(row)) for row in rows]
