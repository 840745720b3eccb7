"""Canary: the base model's answers to a few prompts, which must be equal on all workers.

A faulty GPU, memory or library may change answers without an error. The aggregator reports
workers with equal environments and different canaries.
"""

import hashlib
import json
import logging
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing

from modnorm.engines import Engine, GenerationLimits
from modnorm.errors import CandidateError

PROMPTS = 4
TOKENS = 32
"""Cap of a replayed answer; the replay costs a fraction of a candidate per experiment."""
_BROKEN = "not finite"

logger = logging.getLogger(__name__)


def replay(
    engine: Engine, prompts: Sequence[Sequence[int]], max_tokens: int, poll: Callable[[], None]
) -> Mapping[str, str]:
    """Return digests of the base model's answers, which every report contains."""
    replayed, limits = prompts[:PROMPTS], GenerationLimits(min(max_tokens, TOKENS))
    request = [engine.model_digest, [list(prompt) for prompt in replayed], limits.max_tokens]
    engine.rebase(None)
    try:
        with closing(engine.generate(replayed, limits, poll=poll)) as completions:
            answers = _digest(sorted((one.index, one.text, one.tokens) for one in completions))
    except CandidateError as error:
        logger.warning("the base model fails: %s", error)
        answers = _BROKEN
    return {"canary": answers, "canary_of": _digest(request)}


def _digest(content: object) -> str:
    return hashlib.sha256(json.dumps(content).encode()).hexdigest()[:16]
