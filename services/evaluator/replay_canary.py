"""Canary: answers of the base model to a few prompts, which must not differ between workers.

Silent faults of a GPU, its memory or a library change answers and raise nothing. The aggregator
reports workers of equal environments whose canaries differ.
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
"""Longest answer that is replayed: a fraction of a candidate, once a model and experiment."""
_BROKEN = "not finite"

logger = logging.getLogger(__name__)


def replay(
    engine: Engine, prompts: Sequence[Sequence[int]], max_tokens: int, poll: Callable[[], None]
) -> Mapping[str, str]:
    """Return digests of the base model's answers, to be recorded with every result.

    Args:
        engine: Holds the base afterwards.
        prompts: Token ids of the selection rows' prompts, in order.
        max_tokens: Completion cap of the experiment.
        poll: Called between decode steps; its errors end the replay.

    Returns:
        `canary`, of the answers, and `canary_of`, of the request.

    Raises:
        EngineError: the infrastructure failed.
    """
    asked, limits = prompts[:PROMPTS], GenerationLimits(min(max_tokens, TOKENS))
    request = [engine.model_digest, [list(prompt) for prompt in asked], limits.max_tokens]
    engine.rebase(None)
    try:
        with closing(engine.generate(asked, limits, poll=poll)) as completions:
            answers = _digest(sorted((one.index, one.text, one.tokens) for one in completions))
    except CandidateError as error:
        logger.warning("the base itself fails: %s", error)
        answers = _BROKEN
    return {"canary": answers, "canary_of": _digest(request)}


def _digest(content: object) -> str:
    return hashlib.sha256(json.dumps(content).encode()).hexdigest()[:16]
