"""`python -m tests.forked_trainings ARGUMENTS`: the command line, whose trainings are forks."""

import json
import os

from modnorm.cli import main
from modnorm.training import child_process

if __name__ == "__main__":
    child_process.COMMAND = json.loads(os.environ["TEST_TRAINING_COMMAND"])
    main()
