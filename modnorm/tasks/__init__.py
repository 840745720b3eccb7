"""Tasks (benchmarks): rows, prompts, selection rewards, votes and metrics."""

from modnorm.tasks.protocol import Judgement, Message, Row, Task
from modnorm.tasks.registry import (
    check_sandbox,
    get_stored_task,
    get_task,
    paper_tasks,
    runs_programs,
)

__all__ = [
    "Judgement",
    "Message",
    "Row",
    "Task",
    "check_sandbox",
    "get_stored_task",
    "get_task",
    "paper_tasks",
    "runs_programs",
]
