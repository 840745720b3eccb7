"""A canary: what the base says to a few prompts, which is the same on every worker alike.

Silent faults of a GPU, of its memory or of a library change answers and raise nothing. Workers
whose environments are equal must give equal tokens to an equal request; who does not is told of.
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
"""Replayed of each prompt, at most: a fraction of a candidate, once a model and experiment."""
_BROKEN = "not finite"

logger = logging.getLogger(__name__)


def replay(
    engine: Engine, prompts: Sequence[Sequence[int]], max_tokens: int, poll: Callable[[], None]
) -> Mapping[str, str]:
    """Return what the base says, as digests to be recorded with every result.

    Args:
        engine: Holds any state outside a candidate; the base afterwards.
        prompts: Of the selection rows, in order.
        max_tokens: Completion cap of the experiment.
        poll: Called between decode steps; what it raises aborts the replay.

    Returns:
        `canary`, of the answers, and `canary_of`, of what was asked.

    Raises:
        EngineError: the infrastructure failed.
    """
    asked, limits = prompts[:PROMPTS], GenerationLimits(min(max_tokens, TOKENS))
    request = [engine.model_digest, [list(prompt) for prompt in asked], limits.max_tokens]
    engine.rebase(None)
    try:
        with closing(engine.generate(asked, limits, poll=poll)) as said:
            answers = _digest(sorted((one.index, one.text, one.tokens) for one in said))
    except CandidateError as error:
        logger.warning("the base itself fails: %s", error)
        answers = _BROKEN
    return {"canary": answers, "canary_of": _digest(request)}


def _digest(content: object) -> str:
    return hashlib.sha256(json.dumps(content).encode()).hexdigest()[:16]
