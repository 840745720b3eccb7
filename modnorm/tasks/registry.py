"""Tasks and their scorers by name."""

import inspect
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from importlib import import_module
from importlib.metadata import entry_points
from pathlib import Path
from typing import TYPE_CHECKING

from modnorm.errors import InvalidInputError, PreconditionError
from modnorm.hints import did_you_mean, one_of
from modnorm.tasks.declared_task import declared_task, is_task_file, load_task
from modnorm.tasks.protocol import Task

if TYPE_CHECKING:
    from modnorm.sandbox import Isolation, Runner


_RUN_PROGRAMS = frozenset({"mbpp"})


def runs_programs(task: str) -> bool:
    """Whether judging a task runs programs that a model wrote."""
    return task in _RUN_PROGRAMS


def check_sandbox(task: str, sandbox: "Runner | None") -> "Isolation | None":
    """Return the isolation as measured now; None if the task runs no programs."""
    if not runs_programs(task):
        return None
    return require_sandbox(task, sandbox).check_health()


def require_sandbox(task: str, sandbox: "Runner | None") -> "Runner":
    """Return the sandbox of a task that runs programs."""
    if sandbox is None:
        raise PreconditionError(
            f"{task} runs programs that a model wrote, and there is no sandbox to run them in",
            field="task.name",
            remedy="start the sandbox service and set MODNORM_SANDBOX_TARGET to its HOST:PORT",
        )
    return sandbox


ENTRY_POINTS = "modnorm.tasks"
"""Entry point group of other packages' tasks: name -> class or function that makes a task."""


_CLASSES: Mapping[str, tuple[str, ...]] = {
    "countdown": ("Countdown", "PublishedCountdown"),
    "gsm8k": ("Gsm8k", "PublishedGsm8k"),
    "math500": ("Math500", "PublishedMath500"),
    "mbpp": ("Mbpp", "PublishedMbpp"),
    "olympiadbench": ("OlympiadBench", "PublishedOlympiadBench"),
    "rocstories": ("RocStories", "PublishedRocStories"),
    "uspto50k": ("Uspto50k", "PublishedUspto50k"),
}
"""Classes of each task, the default scorer's first."""
_MODULES = {"math500": "competitions", "olympiadbench": "competitions"}
"""Modules of tasks; that of another task has its name. All are imported on demand."""


@cache
def _classes(name: str) -> Mapping[str, type[Task]]:
    """Return the classes of a task by scorer, the default first."""
    module = import_module(f"modnorm.tasks.{_MODULES.get(name, name)}")
    kinds: list[type[Task]] = [getattr(module, kind) for kind in _CLASSES[name]]
    return {str(kind.scorer): kind for kind in kinds}


def task_names() -> tuple[str, ...]:
    """Return the names of all tasks, including other packages', in alphabetical order."""
    return tuple(sorted({*_CLASSES, *_installed()}))


def paper_tasks() -> tuple[str, ...]:
    """Return the names of the paper's tasks, which every installation has."""
    return tuple(_CLASSES)


def scorer_names(name: str) -> tuple[str, ...]:
    """Return the scorers of a task, the default first; a task outside the paper has one."""
    if name in _CLASSES:
        return tuple(_classes(name))
    return (get_task(name).scorer,)


def task_summary(name: str) -> str:
    """Return the first sentence of a task's documentation, without its last stop."""
    text = inspect.getdoc(type(get_task(name))) or ""
    return " ".join(text.partition("\n\n")[0].split()).removesuffix(".")


def get_task(
    name: str,
    *,
    scorer: str | None = None,
    sandbox: "Runner | None" = None,
    declaration: str | None = None,
) -> Task:
    """Return a task by name: registered, declared by a text, or (without one) a `.yaml` file's.

    `scorer` is `reference`, a full name, or None for the default. Only to judge `mbpp` needs a
    sandbox.
    """
    if declaration is not None:
        return _only(_declared(name, declaration), scorer)
    if is_task_file(name):
        return _only(load_task(Path(name)), scorer)
    if name in _CLASSES:
        kind: Callable[..., Task] = _classes(name)[_full_name(name, scorer)]
        return kind(sandbox) if runs_programs(name) else kind()
    if name in _installed():
        return _only(_make_installed(name), scorer)
    raise InvalidInputError(
        f"there is no task {name!r}",
        field="task.name",
        remedy=f"{one_of(name, task_names())}, a task file that ends in .yaml, "
        "or the task of a package to install",
    )


def get_stored_task(
    name: str,
    *,
    scorer: str | None = None,
    sandbox: "Runner | None" = None,
    declaration: str | None = None,
) -> Task:
    """Return a task of a stored experiment like `get_task`, without reading a file."""
    if declaration is None and is_task_file(name):
        raise InvalidInputError(
            f"the text of {name} is missing: a lab reads no task files",
            field="task.name",
            remedy="submit with `modnorm submit` or the Python client, which read the file, or "
            "give its text as task.declaration",
        )
    return get_task(name, scorer=scorer, sandbox=sandbox, declaration=declaration)


def _full_name(task: str, scorer: str | None) -> str:
    """Return a scorer's name with task and version; `reference` has neither."""
    names = list(_classes(task))
    if scorer is None or scorer in names:
        return scorer or names[0]
    # The default's short name is empty.
    short = {name.removeprefix(task).rpartition("-v")[0].removeprefix("-"): name for name in names}
    if scorer and scorer in short:
        return short[scorer]
    raise _no_scorer(scorer, names, list(filter(None, short)))


def _only(task: Task, scorer: str | None) -> Task:
    if scorer not in {None, task.scorer}:
        raise _no_scorer(str(scorer), [task.scorer])
    return task


def _no_scorer(scorer: str, names: Sequence[str], short: Sequence[str] = ()) -> InvalidInputError:
    listed = f"one of {', '.join(names)}"
    hint = did_you_mean(scorer, (*names, *short))
    return InvalidInputError(
        f"there is no scorer {scorer!r}",
        field="task.scorer",
        remedy=f"{hint} {listed}" if hint else listed,
    )


def _declared(name: str, text: str) -> Task:
    task = declared_task(text, source="the declaration", field="task.declaration")
    if task.name != name:
        raise InvalidInputError(
            f"the declaration is of a task {task.name!r}, not of {name!r}",
            field="task.name",
            remedy=f"name it {task.name}, or remove the declaration",
        )
    return task


def _installed() -> Mapping[str, Callable[[], Callable[[], Task]]]:
    return {point.name: point.load for point in entry_points(group=ENTRY_POINTS)}


def _make_installed(name: str) -> Task:
    try:
        task = _installed()[name]()()
    except (Exception, SystemExit) as error:
        raise InvalidInputError(
            f"the installed task {name!r} cannot be created: {type(error).__name__}: {error}",
            field="task.name",
        ) from error
    _require_interface(name, task)
    if task.name != name:
        raise InvalidInputError(
            f"the entry point {name!r} makes a task of another name, {task.name!r}",
            field="task.name",
        )
    return task


def _require_interface(name: str, task: object) -> None:
    """Refuse an object without an attribute or a method of a task."""
    attributes = {"name": str, "scorer": str, "max_tokens": int}
    wrong = [
        key for key, kind in attributes.items() if not isinstance(getattr(task, key, None), kind)
    ]
    methods = ("parse", "messages", "judge", "metric")
    wrong += [method for method in methods if not callable(getattr(task, method, None))]
    if wrong:
        raise InvalidInputError(
            f"the installed task {name!r} lacks {wrong[0]}, or has it with a wrong type",
            field="task.name",
        )
