"""`modnorm run` with notes of when its engine loads and answers.

    python -m benchmarks.pipeline.watched_run EVENTS run SPEC --out DIR

Only calls of the engine are noted; nothing else differs from `modnorm`.
"""

import sys
from collections.abc import Callable, Generator, Sequence
from pathlib import Path

from benchmarks.pipeline.events import EventLog
from modnorm import engines
from modnorm.checkpoint.reference import Checkpoint
from modnorm.engines.protocol import Completion, Engine, GenerationLimits, OnTokens
from modnorm.engines.settings import EngineSettings


def watch(log: EventLog) -> None:
    """Note when engines load, and when each model begins, has its first tokens, and ends.

    The rows of the first request of several are the selection rows; all others are held-out.
    """
    load, seen = engines.load_engine, list[Sequence[Sequence[int]]]()

    def load_watched(
        name: str, checkpoint: Checkpoint, settings: EngineSettings | None = None
    ) -> Engine:
        log.note("load")
        engine = load(name, checkpoint, settings)
        log.note("loaded")
        generate = engine.generate

        def watched(
            prompts: Sequence[Sequence[int]],
            limits: GenerationLimits,
            *,
            poll: Callable[[], None] | None = None,
            on_tokens: OnTokens | None = None,
        ) -> Generator[Completion]:
            if len(prompts) < 2:  # a check of the engine
                yield from generate(prompts, limits, poll=poll, on_tokens=on_tokens)
                return
            if not seen:
                seen.append(prompts)
            split = "selection" if prompts == seen[0] else "heldout"
            log.note("answer", len(prompts), split)
            polls = 0

            def counting() -> None:
                nonlocal polls
                polls += 1
                if polls == 2:  # the first step is over
                    log.note("token")
                if poll:
                    poll()

            yield from generate(prompts, limits, poll=counting, on_tokens=on_tokens)
            log.note("answered")

        engine.generate = watched  # type: ignore[method-assign]
        return engine

    engines.load_engine = load_watched


def main() -> None:
    """Run the command; write the events however it ends."""
    log = EventLog(Path(sys.argv[1]))
    watch(log)
    from modnorm.cli import main as modnorm  # noqa: PLC0415 - it must find the watched engine

    sys.argv = ["modnorm", *sys.argv[2:]]
    try:
        modnorm()
    finally:
        log.write()


if __name__ == "__main__":
    main()
