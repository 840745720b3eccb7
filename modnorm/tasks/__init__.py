"""Tasks (benchmarks): rows, prompts, selection rewards, votes and metrics."""

from modnorm.tasks.protocol import Judgement, Message, RewardBounds, Row, Task, stated_bounds
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
    "RewardBounds",
    "Row",
    "Task",
    "check_sandbox",
    "get_stored_task",
    "get_task",
    "paper_tasks",
    "runs_programs",
    "stated_bounds",
]
