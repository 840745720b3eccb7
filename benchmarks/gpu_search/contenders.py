"""The contenders of a search, by name.

- `published`: the published loop.
- `one`: one engine of this project with CUDA graphs.
- `mpsE`: E engine processes on the GPU under NVIDIA's MPS, pulling from one queue.
- `NAME@VARIANT`: the same, started otherwise (`variants`): `one@sync`, say.
- `NAME+stop`: the same, and candidates that cannot be among the K best are stopped; they rest for
  others to begin, and the best go on first, as in an evaluator.
- `NAME+inorder`: the same, and each runs through, in the order of their indices.
"""

import re
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from benchmarks.gpu_search.messages import Settings
from benchmarks.gpu_search.processes import Child, ending, environment
from benchmarks.gpu_search.variants import USUAL, VARIANTS
from services.evaluator.mps import start_mps

STOP, IN_ORDER = "+stop", "+inorder"
PUBLISHED = "published"
ONE = "one"
_MPS = re.compile(r"mps([2-9])")
_OURS = "benchmarks.gpu_search.ours"
_THEIRS = "benchmarks.gpu_search.published"
_SHARE = 0.9
_CACHE_BYTES = 88 * 2**30
"""Of all engines that share a GPU: what 0.9 of an H200 has left beside four times two copies."""


@dataclass(frozen=True)
class Contender:
    """Who searches, and how.

    Attributes:
        name: As on the command line.
        pool: What has to run for it: `published`, `one` or `mps`.
        engines: Engines that it uses.
        stops: Whether candidates are stopped early.
        rests: Whether they rest before.
        variant: How its engines are started.
    """

    name: str
    pool: str
    engines: int
    stops: bool
    variant: str = USUAL
    rests: bool = False


@dataclass(frozen=True)
class Pool:
    """Engines that are up.

    Attributes:
        engines: One process each.
        environment: What the first of them runs on.
    """

    engines: Sequence[Child]
    environment: Mapping[str, str]


def contender_named(name: str) -> Contender:
    """Return a contender.

    Raises:
        SystemExit: there is none of this name.
    """
    if name == PUBLISHED:
        return Contender(name, name, 1, stops=False)
    base, _, variant = name.removesuffix(STOP).removesuffix(IN_ORDER).partition("@")
    rests = name.endswith(STOP)
    stops = rests or name.endswith(IN_ORDER)
    if variant in VARIANTS and base == ONE:
        return Contender(name, base, 1, stops, variant, rests)
    if variant in VARIANTS and (found := _MPS.fullmatch(base)):
        return Contender(name, "mps", int(found[1]), stops, variant, rests)
    variants = ", ".join(f"@{known}" for known in VARIANTS if known)
    raise SystemExit(
        f"there is no contender {name!r}: published, one, mps2 to mps9, the last two with "
        f"{variants} and +stop or +inorder"
    )


@contextmanager
def pool_of(contenders: Sequence[Contender], settings: Settings) -> Iterator[Pool]:
    """Start what some contenders of one pool and variant need, until the context ends.

    Several engines are told the size of their caches: vLLM would measure the memory that is free
    while it starts, and they could not start beside each other. The first leaves compiled kernels.
    """
    kind, count = contenders[0].pool, max(one.engines for one in contenders)
    with ExitStack() as stack:
        variant = contenders[0].variant
        variables = {**VARIANTS[variant].variables, **(_mps(stack) if kind == "mps" else {})}
        module = _THEIRS if kind == PUBLISHED else _OURS
        cache = _CACHE_BYTES // count if count > 1 else None
        given = replace(settings, share=_SHARE / count, cache_bytes=cache, variant=variant)
        engines = [Child(f"{kind} {n}", module, given, variables) for n in range(count)]
        stack.enter_context(ending(*engines))
        first = engines[0].ask("start")
        for engine in engines[1:]:
            engine.tell("start")
        for engine in engines[1:]:
            engine.answer()
        yield Pool(engines, dict(first) if isinstance(first, dict) else {})


def _mps(stack: ExitStack) -> Mapping[str, str]:
    """Start NVIDIA's MPS as an evaluator does; return what its clients need."""
    made = tempfile.TemporaryDirectory(prefix="mps-", ignore_cleanup_errors=True)
    daemon = start_mps(environment({}), Path(stack.enter_context(made)))
    stack.callback(daemon.close)
    return daemon.changes
