"""Seconds of a search on a GPU: what a decode step costs at least, for each model and batch.

A step reads all weights once, and each of its tokens takes work in proportion to the weights. The
constants are fitted to Qwen2.5-Coder-0.5B and 1.5B in bfloat16 on an H100 and an H200.
"""

from dataclasses import dataclass
from pathlib import Path

from modnorm.errors import InvalidInputError
from modnorm.hints import one_of

BANDWIDTH = {"H100": 3.35e12, "H200": 4.8e12}
"""Bytes a second that the memory of a known GPU delivers."""
SEQUENCES = 1_024
"""Most sequences of a step, if the spec does not say: so many fit beside models of some billion
weights."""
START_SECONDS = 80.0
"""Start of vLLM, graphs included."""
CALIBRATION_SECONDS = 0.15
"""Calibration on one prompt."""

_STEP_SECONDS = 1.5e-3
"""A step apart from weights and tokens: kernel launches, attention, sampling."""
_TOKEN_SECONDS = 9.1e-15
"""Work on a token, for each weight."""
_GAP_SECONDS = 0.2
"""Between two candidates, and while the last sequences of one leave the batch small."""
_BYTES = 2
"""Of a weight in bfloat16."""
_TOKENS = {"gsm8k": 300, "math500": 500, "olympiadbench": 800, "mbpp": 200}
"""Tokens of an answer by task, where the cap is no lower; otherwise answers reach the cap."""
_DRIVER = Path("/proc/driver/nvidia/gpus")


@dataclass(frozen=True, slots=True)
class GpuSpeed:
    """The speed of one model on one GPU."""

    gpu: str
    """Name of a known GPU."""
    weights: int
    """Number of weights."""
    sequences: int = SEQUENCES
    """Most sequences of a step."""

    def candidate_seconds(self, rows: int, tokens: int) -> float:
        """Return the seconds of one candidate.

        Args:
            rows: Number of prompts.
            tokens: Tokens of an answer, on average.
        """
        batch = min(rows, self.sequences)
        step = _STEP_SECONDS + self.weights * (
            _BYTES / BANDWIDTH[self.gpu] + _TOKEN_SECONDS * batch
        )
        return _GAP_SECONDS + tokens * rows / batch * step


def answer_tokens(task: str, cap: int) -> int:
    """Return the expected tokens of an answer: those typical of the task, or the cap."""
    return min(cap, _TOKENS.get(task, cap))


def require_known(gpu: str | None) -> None:
    """Refuse the name of an unknown GPU.

    Raises:
        InvalidInputError: it was never measured.
    """
    if gpu is not None and gpu not in BANDWIDTH:
        raise InvalidInputError(
            f"the speed of {gpu!r} is not known", field="gpu", remedy=one_of(gpu, BANDWIDTH)
        )


def gpu_here() -> str | None:
    """Return the known GPU of this machine that is most like its own; None without a GPU."""
    try:
        text = "".join(each.read_text() for each in _DRIVER.glob("*/information"))
    except OSError:
        return None
    if not text:
        return None
    return next((name for name in BANDWIDTH if name in text), "H100")
