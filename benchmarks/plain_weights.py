"""A worker of vLLM that writes candidates without the fused kernels, for `benchmarks.worth`."""

from unittest.mock import patch

from modnorm.engines.vllm.rank_model import CandidateWorker
from modnorm.perturbation import candidate_weights


def _no_kernels(*_: object) -> None:
    """Stand for the kernels of a GPU with Triton."""


patch.object(candidate_weights, "fused_weights", _no_kernels).start()


class PlainWeightsWorker(CandidateWorker):
    """Candidate weights by torch's own operations."""
