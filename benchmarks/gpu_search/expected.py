"""Expected scores of a search, computed from the draws without a model."""

from benchmarks.gpu_search.workload import DrawnTask, Workload
from modnorm.search.ranking import mean_reward


def drawn_scores(workload: Workload, candidates: int) -> dict[int, float]:
    """Return the score of each candidate if its answers are exactly the drawn ones."""
    return {candidate: _score(workload, candidate) for candidate in range(candidates)}


def _score(workload: Workload, candidate: int) -> float:
    task = DrawnTask(workload.cap)
    return mean_reward([task.judge(row, "").reward for row in workload.table(candidate)])
