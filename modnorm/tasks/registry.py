"""Tasks and their scorers by name."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import entry_points
from pathlib import Path
from types import MappingProxyType

from modnorm.errors import InvalidInputError
from modnorm.sandbox import Runner
from modnorm.tasks.countdown import Countdown, PublishedCountdown
from modnorm.tasks.declaration import is_task_file
from modnorm.tasks.declared import declared_task, load_task
from modnorm.tasks.gsm8k import Gsm8k, PublishedGsm8k
from modnorm.tasks.math500 import Math500, PublishedMath500
from modnorm.tasks.mbpp import Mbpp, PublishedMbpp, SelfReportedMbpp, SelfReportedPublishedMbpp
from modnorm.tasks.olympiadbench import OlympiadBench, PublishedOlympiadBench
from modnorm.tasks.protocol import Task
from modnorm.tasks.rocstories import PublishedRocStories, RocStories
from modnorm.tasks.uspto50k import PublishedUspto50k, Uspto50k

ENTRY_POINTS = "modnorm.tasks"
"""Entry point group of tasks from other packages: name -> class or function that makes a task."""


@dataclass(frozen=True, slots=True)
class _Scoring:
    """One way to score a task."""

    scorer: str
    """Name and version: `mbpp-v1`."""
    make: Callable[[Runner | None], Task]

    def short_name(self, task: str) -> str:
        """Return the name without task and version: `reference`; "" for the default."""
        return self.scorer.removeprefix(task).rpartition("-v")[0].removeprefix("-")


def _pure(*tasks: Task) -> tuple[_Scoring, ...]:
    """Return the scorings of tasks that run nothing."""

    def scoring(task: Task) -> _Scoring:
        return _Scoring(task.scorer, lambda _: task)

    return tuple(map(scoring, tasks))


def _running(*kinds: type[Mbpp]) -> tuple[_Scoring, ...]:
    """Return the scorings of tasks that run programs."""
    return tuple(_Scoring(kind.scorer, kind) for kind in kinds)


_TASKS: Mapping[str, tuple[_Scoring, ...]] = MappingProxyType(
    {
        "countdown": _pure(Countdown(), PublishedCountdown()),
        "gsm8k": _pure(Gsm8k(), PublishedGsm8k()),
        "math500": _pure(Math500(), PublishedMath500()),
        "mbpp": _running(Mbpp, PublishedMbpp, SelfReportedMbpp, SelfReportedPublishedMbpp),
        "olympiadbench": _pure(OlympiadBench(), PublishedOlympiadBench()),
        "rocstories": _pure(RocStories(), PublishedRocStories()),
        "uspto50k": _pure(Uspto50k(), PublishedUspto50k()),
    }
)


def task_names() -> tuple[str, ...]:
    """Return the names of all tasks, those of other packages too, in alphabetical order."""
    return tuple(sorted({*_TASKS, *_installed()}))


def paper_tasks() -> tuple[str, ...]:
    """Return the names of the tasks that come with every installation."""
    return tuple(_TASKS)


def scorer_names(name: str) -> tuple[str, ...]:
    """Return the scorers of a task, the default first; a task that is not the paper's has one.

    Raises:
        InvalidInputError: there is no such task.
    """
    if name in _TASKS:
        return tuple(scoring.scorer for scoring in _TASKS[name])
    return (get_task(name).scorer,)


def get_task(
    name: str,
    *,
    scorer: str | None = None,
    sandbox: Runner | None = None,
    declaration: str | None = None,
) -> Task:
    """Return a task by name.

    Args:
        name: A name of `task_names`, or that of the declared task; without a declaration also a
            task file that ends in `.yaml` or `.yml`.
        scorer: `reference`, or a full name such as `gsm8k-reference-v1`; the default when None.
            `mbpp` has `self-reported` and `reference-self-reported` too.
        sandbox: Runs the programs that a model wrote. Only `mbpp` needs it, and only to judge.
        declaration: Text that declares the task.

    Raises:
        InvalidInputError: there is no such task, it has no such scorer, or the text does not
            declare it.
    """
    if declaration is not None:
        return _only(_declared(name, declaration), scorer)
    if is_task_file(name):
        return _only(load_task(Path(name)), scorer)
    if name in _TASKS:
        return _scoring(name, scorer).make(sandbox)
    if name in _installed():
        return _only(_make_installed(name), scorer)
    raise InvalidInputError(
        f"there is no task {name!r}",
        field="task.name",
        remedy=f"one of {', '.join(task_names())}, or a task file that ends in .yaml",
    )


def get_stored_task(
    name: str,
    *,
    scorer: str | None = None,
    sandbox: Runner | None = None,
    declaration: str | None = None,
) -> Task:
    """Return a task of an experiment, as `get_task` does; no file is read.

    Raises:
        InvalidInputError: there is no such task, it has no such scorer, or the text does not
            declare it.
    """
    if declaration is None and is_task_file(name):
        raise InvalidInputError(
            f"the text of {name} is missing: a lab reads no task files",
            field="task.name",
            remedy="submit with `modnorm submit` or the Python client, which read the file, or "
            "give its text as task.declaration",
        )
    return get_task(name, scorer=scorer, sandbox=sandbox, declaration=declaration)


def _scoring(task: str, scorer: str | None) -> _Scoring:
    scorings = _TASKS[task]
    if scorer is None:
        return scorings[0]
    for scoring in scorings:
        if scorer == scoring.scorer or (scorer and scorer == scoring.short_name(task)):
            return scoring
    raise _no_scorer(scorer, [scoring.scorer for scoring in scorings])


def _only(task: Task, scorer: str | None) -> Task:
    if scorer not in {None, task.scorer}:
        raise _no_scorer(str(scorer), [task.scorer])
    return task


def _no_scorer(scorer: str, names: Sequence[str]) -> InvalidInputError:
    return InvalidInputError(
        f"there is no scorer {scorer!r}", field="task.scorer", remedy=f"one of {', '.join(names)}"
    )


def _declared(name: str, text: str) -> Task:
    task = declared_task(text, source="the declaration", field="task.declaration")
    if task.name != name:
        raise InvalidInputError(
            f"the declaration is of a task {task.name!r}, not of {name!r}",
            field="task.name",
            remedy=f"name it {task.name}, or leave the declaration out",
        )
    return task


def _installed() -> Mapping[str, Callable[[], Callable[[], Task]]]:
    return {point.name: point.load for point in entry_points(group=ENTRY_POINTS)}


def _make_installed(name: str) -> Task:
    try:
        task = _installed()[name]()()
    except (Exception, SystemExit) as error:
        raise InvalidInputError(
            f"the installed task {name!r} cannot be made: {error}", field="task.name"
        ) from error
    if task.name != name:
        raise InvalidInputError(
            f"the entry point {name!r} makes a task that calls itself {task.name!r}",
            field="task.name",
        )
    return task
