"""Supervised fine-tuning of a student on an ensemble's answers, by TRL and PEFT.

Needs the extra `modnorm[train]`. The names exported here import neither.
"""

from modnorm.training.child_process import train_in_child
from modnorm.training.job import TrainedStudent, TrainingJob

__all__ = ["TrainedStudent", "TrainingJob", "train_in_child"]
