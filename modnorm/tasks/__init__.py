"""Benchmarks: prompts, selection rewards, votes, metrics and their rows."""

from modnorm.tasks.protocol import Judgement, Message, Row, Task
from modnorm.tasks.registry import get_task, scorer_names, task_names
from modnorm.tasks.sandboxed import check_sandbox, runs_programs

__all__ = [
    "Judgement",
    "Message",
    "Row",
    "Task",
    "check_sandbox",
    "get_task",
    "runs_programs",
    "scorer_names",
    "task_names",
]
