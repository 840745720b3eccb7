"""Gaps between the two greatest logits where two answers of a candidate first differ."""

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from itertools import groupby
from pathlib import Path

import torch
from transformers import AutoModelForCausalLM

from modnorm.analysis.descriptors import read_descriptors
from modnorm.checkpoint.prompts import PromptEncoder
from modnorm.checkpoint.reference import Checkpoint, resolve_checkpoint
from modnorm.checkpoint.weights import CheckpointWeights
from modnorm.engines.parameter_views import weight_views
from modnorm.geometry.scale_map import ScaleMap
from modnorm.perturbation.candidate_weights import CandidateWeights
from modnorm.spec import ExperimentSpec
from modnorm.tasks import get_task
from modnorm.tasks.row_loading import load_rows

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
    encoder, model = PromptEncoder(checkpoint), _Candidates(checkpoint, directory)
    prompts = {split: _prompts(spec, split, encoder) for split in {key[1] for key in keys}}
    for candidate, group in groupby(keys, key=lambda key: key[0]):
        model.write(candidate)
        for key in group:
            first, second = (encoder.encode_text(texts[key]) for texts in said)
            common = _common(first, second)
            logits = model.logits([*prompts[key[1]][key[2]], *first[:common]])
            top = logits.topk(2).values.tolist()
            yield {"answer": list(key), "place": common, "gap": top[0] - top[1], "logit": top[0]}


def _common(first: Sequence[int], second: Sequence[int]) -> int:
    """Return the number of equal tokens at the beginning."""
    pairs = zip(first, second, strict=False)
    return next(
        (n for n, (one, two) in enumerate(pairs) if one != two), min(len(first), len(second))
    )


def _prompts(spec: ExperimentSpec, split: str, encoder: PromptEncoder) -> list[Sequence[int]]:
    task = get_task(spec.task.name)
    rows = load_rows(task, getattr(spec.task, split), field=split)
    return [encoder.encode(task.messages(row)) for row in rows]


class _Candidates:
    """A model that becomes one candidate of a run after another."""

    def __init__(self, checkpoint: Checkpoint, directory: Path) -> None:
        stored = CheckpointWeights(checkpoint)
        on_gpu = torch.cuda.is_available()
        dtype = stored.dtype if on_gpu else torch.float32
        loaded = AutoModelForCausalLM.from_pretrained(checkpoint.directory, dtype=dtype)
        self._model = loaded.eval().to("cuda" if on_gpu else "cpu")
        self._weights = CandidateWeights(
            stored.layout,
            weight_views(stored.layout, self._model, dtype),
            model_digest=checkpoint.digest,
            dtype=stored.dtype,
            origin=partial(stored.read_unchanged, checkpoint.digest),
        )
        self._descriptors = dict(read_descriptors(directory))
        self._scale_map = ScaleMap.from_json((directory / "scale_map.json").read_text())

    def write(self, candidate: int) -> None:
        """Become a candidate, or the base."""
        self._weights.restore()
        if candidate != BASE:
            self._weights.apply(self._descriptors[candidate], self._scale_map)

    @torch.inference_mode()
    def logits(self, tokens: Sequence[int]) -> torch.Tensor:
        """Return the logits after tokens, float32."""
        ids = torch.tensor([list(tokens)], device=self._model.device)
        logits: torch.Tensor = self._model(input_ids=ids).logits[0, -1].float()
        return logits
