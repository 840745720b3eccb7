"""Greedy answers of the vLLM engine against the transformers engine.

    python -m verification.engine_agreement [--model tiny-thicket] [--prompts 100] [--candidates 4]
                                          [--max-tokens 128] [--out FILE]

The base and some candidates answer the same prompts in both engines, with the same weights
(SHA-256 is compared). Where two answers differ, the first step that differs is looked at in
float32: both tokens' logits after the common beginning. A near-tie is a gap that the rounding of
the weights' dtype explains; exits with 1 when weights differ, or when a gap exceeds --near.
"""

import argparse
import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass
from importlib.util import find_spec
from pathlib import Path

import torch

from modnorm.checkpoint.pretrained import best_device, load_pretrained
from modnorm.checkpoint.prompts import PromptEncoder
from modnorm.checkpoint.reference import Checkpoint, resolve_checkpoint
from modnorm.checkpoint.weights import CheckpointWeights
from modnorm.engines import Engine, EngineSettings, GenerationLimits
from modnorm.engines.transformers_engine import TransformersEngine, weight_views
from modnorm.geometry.scale_map import ScaleMap
from modnorm.perturbation.candidate_weights import CandidateWeights
from modnorm.perturbation.descriptor import Descriptor
from modnorm.perturbation.methods import build_scale_map
from modnorm.spec import DataSpec
from modnorm.tasks import get_task
from modnorm.tasks.row_loading import load_rows


class CandidateLogits:
    """A model that becomes one candidate after another; at first it is the base.

    Args:
        checkpoint: The base, to whose dtype all weights are rounded.
        dtype: Dtype of the arithmetic.
        device: Device of the model.
    """

    def __init__(self, checkpoint: Checkpoint, dtype: torch.dtype, device: torch.device) -> None:
        stored = CheckpointWeights(checkpoint)
        model = load_pretrained(checkpoint, dtype=dtype, attention="sdpa")
        self._model = torch.nn.Module.to(model, device)
        self._device = device
        self._weights = CandidateWeights(
            stored.layout,
            weight_views(stored.layout, self._model, dtype),
            model_digest=checkpoint.digest,
            dtype=stored.dtype,
        )

    def become(self, candidate: tuple[Descriptor, ScaleMap] | None) -> None:
        """Become a candidate; None for the base."""
        self._weights.restore()
        if candidate is not None:
            self._weights.apply(*candidate)

    @torch.inference_mode()
    def after(self, tokens: Sequence[int]) -> torch.Tensor:
        """Return the logits after tokens, float32 [vocabulary]."""
        ids = torch.tensor([list(tokens)], device=self._device)
        logits: torch.Tensor = self._model(input_ids=ids).logits[0, -1].float()
        return logits


def common_length(left: Sequence[int], right: Sequence[int]) -> int:
    """Return the number of equal tokens at the beginning."""
    pairs = enumerate(zip(left, right, strict=False))
    return next((place for place, (a, b) in pairs if a != b), min(len(left), len(right)))


_SHARE = 0.4
"""Share of a GPU's memory for each of the two engines, which run at the same time."""
Prompts = Sequence[Sequence[int]]
Answers = Mapping[int, Sequence[int]]


@dataclass(frozen=True, slots=True)
class Parting:
    """The first difference of two answers to one prompt."""

    candidate: int
    """Seed of the candidate; 0 for the base."""
    prompt: int
    step: int
    """Number of common first tokens."""
    gap: float
    """Logit of the reference engine's token minus that of the other, in float32."""
    spread: float
    """Standard deviation of the logits there, for the size of the gap."""


class Recorder(PromptEncoder):
    """A tokenizer that records the tokens of answers by their text."""

    def __init__(self, checkpoint: Checkpoint) -> None:
        super().__init__(checkpoint)
        self.seen: dict[str, tuple[int, ...]] = {}

    def answer(self, ids: Sequence[int]) -> str:
        """Return the text of an answer."""
        text = super().answer(ids)
        self.seen[text] = tuple(ids)
        return text


def answers_of(engine: Engine, recorder: Recorder, prompts: Prompts, cap: int) -> Answers:
    """Return the tokens of each answer, by prompt."""
    with closing(engine.generate(prompts, GenerationLimits(cap))) as completions:
        return {one.index: recorder.seen[one.text] for one in completions}


@dataclass(slots=True)
class EngineComparison:
    """Both engines and the differences of their answers."""

    ours: Engine
    reference: Engine
    recorders: tuple[Recorder, Recorder]
    exact: CandidateLogits
    """In float32."""
    prompts: Prompts
    cap: int

    def partings(self, descriptor: Descriptor, scale_map: ScaleMap) -> Iterator[Parting]:
        """Answer with one candidate in both engines; yield the first difference of each answer.

        Raises:
            SystemExit: the engines do not hold the same weights.
        """
        with (
            self.reference.candidate(descriptor, scale_map) as resolved,
            self.ours.candidate(resolved, scale_map),
        ):
            if self.ours.weights_sha256() != self.reference.weights_sha256():
                sys.exit(f"candidate {descriptor.seed}: the weights differ")
            ours = answers_of(self.ours, self.recorders[0], self.prompts, self.cap)
            reference = answers_of(self.reference, self.recorders[1], self.prompts, self.cap)
        different = [index for index, ids in reference.items() if ours[index] != ids]
        self.exact.become((resolved, scale_map))
        for index in sorted(different):
            step = common_length(reference[index], ours[index])
            logits = self.exact.after([*self.prompts[index], *reference[index][:step]])
            gap = float(logits[reference[index][step]] - logits[ours[index][step]])
            yield Parting(resolved.seed, index, step, round(gap, 4), round(float(logits.std()), 3))


def compare(options: argparse.Namespace) -> dict[str, object]:
    """Return the number of equal answers, and the differences of the others."""
    from modnorm.engines.vllm.engine import VllmEngine  # noqa: PLC0415 - loads vLLM

    checkpoint = resolve_checkpoint(options.model)
    task, recorders = get_task("countdown"), (Recorder(checkpoint), Recorder(checkpoint))
    source = DataSpec(source="bundled:countdown-heldout", limit=options.prompts)
    rows = load_rows(task, source, field="source")
    prompts = [recorders[0].encode(task.messages(row)) for row in rows]
    scale_map = build_scale_map("randopt", checkpoint)
    settings = EngineSettings(
        max_model_len=1024, max_num_seqs=256, gpu_memory_utilization=_SHARE, worker_process=False
    )
    ours = VllmEngine(checkpoint, settings)
    reference = TransformersEngine(checkpoint, gpu_share=_SHARE)
    ours._encoder, reference._encoder = recorders  # noqa: SLF001 - engines keep tokens to themselves
    exact = CandidateLogits(checkpoint, torch.float32, best_device())
    both = EngineComparison(ours, reference, recorders, exact, prompts, options.max_tokens)
    partings: list[Parting] = []
    for seed in range(options.candidates + 1):
        sigma = options.sigma if seed else 0.0
        descriptor = Descriptor("portable-v1", seed, scale_map.method, sigma, scale_map.digest)
        partings += both.partings(descriptor, scale_map)
    answers = (options.candidates + 1) * len(prompts)
    environment = dict(ours.environment)
    ours.close()
    reference.close()
    return {
        "environment": environment,
        "answers": answers,
        "equal": answers - len(partings),
        "widest_gap": max((abs(one.gap) for one in partings), default=0.0),
        "partings": [asdict(one) for one in partings],
    }


def main() -> int:
    """Compare and print; return exit code 0 if all differences are near-ties."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--model", default="tiny-thicket")
    parser.add_argument("--prompts", type=int, default=100)
    parser.add_argument("--candidates", type=int, default=4)
    parser.add_argument("--sigma", type=float, default=0.006)
    parser.add_argument("--max-tokens", type=int, default=128)
    parser.add_argument("--near", type=float, default=0.25)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    if not find_spec("vllm"):
        print("vLLM is not installed in this Python (docs/gpu.md)", file=sys.stderr)
        return 2
    comparison = compare(options)
    text = json.dumps(comparison, indent=2)
    print(text)
    if options.out:
        options.out.write_text(text + "\n")
    return 0 if float(str(comparison["widest_gap"])) <= options.near else 1


if __name__ == "__main__":
    sys.exit(main())
