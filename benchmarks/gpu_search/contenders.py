"""The contenders of a search, by name.

- `published`: the published loop.
- `one`: one engine of this project with CUDA graphs.
- `mpsE`: E engine processes on the GPU under NVIDIA's MPS, pulling from one queue.
- `NAME+stop`: candidates that cannot be among the K best are stopped. Candidates are parked so
  that others begin, and the best continue first, as in an evaluator.
- `NAME+drafts`: engines draft from the population; useful with `--texts`.
"""

import re
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from benchmarks.gpu_search.child_processes import Child, ending
from benchmarks.gpu_search.driver_messages import ContenderSettings
from services.common.settings import inherited_environment
from services.evaluator.mps import start_mps

STOP = "+stop"
DRAFTS = "+drafts"
PUBLISHED = "published"
ONE = "one"
_MPS = re.compile(r"mps([2-9])")
_OURS = "benchmarks.gpu_search.ours"
_THEIRS = "benchmarks.gpu_search.published_loop"
_SHARE = 0.9
_WORKING_BYTES = 8 * 2**30
"""Memory of an engine beside weights and cache: graphs, noise, activations, vLLM's warm-up."""


@dataclass(frozen=True)
class Contender:
    """A contender of a search.

    Attributes:
        name: Its name on the command line.
        pool: The engines that it needs: `published`, `one` or `mps`, with or without drafts.
        engines: Number of engines.
        stops: Whether candidates are parked and stopped early.
        drafts: Whether engines draft from the population.
    """

    name: str
    pool: str
    engines: int
    stops: bool
    drafts: bool = False


@dataclass(frozen=True)
class Pool:
    """Running engines.

    Attributes:
        engines: The processes, one per engine.
        environment: Environment of the first engine.
    """

    engines: Sequence[Child]
    environment: Mapping[str, str]


def contender_named(name: str) -> Contender:
    """Return a contender.

    Raises:
        SystemExit: no contender has this name.
    """
    if name == PUBLISHED:
        return Contender(name, name, 1, stops=False)
    rest, drafts = name.removesuffix(DRAFTS), name.endswith(DRAFTS)
    base, stops = rest.removesuffix(STOP), rest.endswith(STOP)
    ending_of_pool = DRAFTS if drafts else ""
    if base == ONE:
        return Contender(name, base + ending_of_pool, 1, stops, drafts)
    if match := _MPS.fullmatch(base):
        return Contender(name, "mps" + ending_of_pool, int(match[1]), stops, drafts)
    raise SystemExit(
        f"there is no contender {name!r}: published, one or mps2 to mps9, or one of the last two "
        f"with {STOP}, {DRAFTS} or both"
    )


@contextmanager
def pool_of(
    contenders: Sequence[Contender], settings: ContenderSettings, *, memory: int, weights: int
) -> Iterator[Pool]:
    """Run the engines of contenders with one pool inside the context.

    Several engines get a fixed cache size: vLLM would measure the memory that is free
    at its start, so they could not start concurrently. The first leaves compiled kernels.

    Args:
        contenders: The contenders.
        settings: Settings of each engine, without its memory.
        memory: Bytes of the GPU.
        weights: Bytes of the model, which an engine holds twice.
    """
    kind, count = contenders[0].pool, max(one.engines for one in contenders)
    with ExitStack() as stack:
        variables = _mps(stack) if kind.startswith("mps") else {}
        module = _THEIRS if kind == PUBLISHED else _OURS
        room = int(_SHARE * memory) // count - 2 * weights - _WORKING_BYTES
        cache = room if count > 1 else None
        given = replace(
            settings, share=_SHARE / count, cache_bytes=cache, drafts=contenders[0].drafts
        )
        engines = [Child(f"{kind} {n}", module, given, variables) for n in range(count)]
        stack.enter_context(ending(*engines))
        first = engines[0].ask("start")
        for engine in engines[1:]:
            engine.tell("start")
        for engine in engines[1:]:
            engine.answer()
        yield Pool(engines, dict(first) if isinstance(first, dict) else {})


def _mps(stack: ExitStack) -> Mapping[str, str]:
    """Start NVIDIA's MPS as an evaluator does; return the environment of its clients."""
    made = tempfile.TemporaryDirectory(prefix="mps-", ignore_cleanup_errors=True)
    daemon = start_mps(inherited_environment(), Path(stack.enter_context(made)))
    stack.callback(daemon.close)
    return daemon.changes
