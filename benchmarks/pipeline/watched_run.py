"""`modnorm run` with notes of when its engine loads and answers.

    python -m benchmarks.pipeline.watched_run EVENTS run SPEC --out DIR

Only calls of the engine are noted; nothing else differs from `modnorm`.
"""

import sys
from collections.abc import Callable, Generator, Sequence
from pathlib import Path

from benchmarks.pipeline.recording import EventLog
from modnorm import engines
from modnorm.checkpoint.reference import Checkpoint
from modnorm.engines.protocol import Completion, Engine, GenerationLimits
from modnorm.engines.settings import EngineSettings


def watch(log: EventLog) -> None:
    """Note when engines load, and when each model begins, has its first tokens, and ends."""
    load = engines.load_engine

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
        ) -> Generator[Completion]:
            log.note("answer", len(prompts), str(hash(tuple(prompts[0]))) if prompts else "")
            polls = 0

            def counting() -> None:
                nonlocal polls
                polls += 1
                if polls == 2:  # the first step is over
                    log.note("token")
                if poll:
                    poll()

            yield from generate(prompts, limits, poll=counting)
            log.note("answered")

        engine.generate = watched  # type: ignore[method-assign]  # its calls are noted
        return engine

    engines.load_engine = load_watched


def main() -> None:
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
