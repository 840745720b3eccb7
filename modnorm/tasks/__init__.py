"""Benchmarks: prompts, selection rewards, votes, metrics and their rows."""

from modnorm.tasks.protocol import (
    BoundedTask,
    Judgement,
    Message,
    RewardBounds,
    Row,
    Task,
    stated_bounds,
)
from modnorm.tasks.registry import (
    get_stored_task,
    get_task,
    paper_tasks,
    scorer_names,
    task_names,
)
from modnorm.tasks.sandboxed import check_sandbox, runs_programs

__all__ = [
    "BoundedTask",
    "Judgement",
    "Message",
    "RewardBounds",
    "Row",
    "Task",
    "check_sandbox",
    "get_stored_task",
    "get_task",
    "paper_tasks",
    "runs_programs",
    "scorer_names",
    "stated_bounds",
    "task_names",
]
