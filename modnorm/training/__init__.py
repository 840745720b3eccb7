"""Supervised fine-tuning of a student on an ensemble's answers, by TRL and PEFT.

Needs the extra `modnorm[train]`. The names exported here import neither.
"""

from modnorm.training.child_process import train_in_child
from modnorm.training.examples import TrainingExample, read_examples
from modnorm.training.job import TrainedStudent, TrainingJob, TrainingProgress, missing_packages

__all__ = [
    "TrainedStudent",
    "TrainingExample",
    "TrainingJob",
    "TrainingProgress",
    "missing_packages",
    "read_examples",
    "train_in_child",
]
