"""Benchmarks: prompts, selection rewards, votes, metrics and their rows."""

from modnorm.tasks.protocol import Judgement, Message, Row, Task
from modnorm.tasks.registry import get_task, scorer_names, task_names
from modnorm.tasks.runner import CodeRunner, Verdict

__all__ = [
    "CodeRunner",
    "Judgement",
    "Message",
    "Row",
    "Task",
    "Verdict",
    "get_task",
    "scorer_names",
    "task_names",
]
