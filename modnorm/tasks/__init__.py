"""Tasks (benchmarks): rows, prompts, selection rewards, votes and metrics."""

from modnorm.tasks.protocol import (
    Judgement,
    Message,
    RewardBounds,
    Row,
    Task,
    prompt_text,
    stated_bounds,
    stated_gold,
)
from modnorm.tasks.registry import (
    check_sandbox,
    get_stored_task,
    get_task,
    paper_tasks,
    runs_programs,
    scorer_names,
    task_names,
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
    "prompt_text",
    "runs_programs",
    "scorer_names",
    "stated_bounds",
    "stated_gold",
    "task_names",
]
