"""The program of a fork: writes what it was given, and does what its arguments say."""

import os
import signal
import sys
import time
from pathlib import Path

import torch

given = " ".join((os.environ["WORD"], *sys.argv[1:]))
sys.stdout.write(f"{Path.cwd()} {given}\n")
sys.stdout.flush()
sys.stderr.write("aside\n")
if "threads" in sys.argv:
    sys.stdout.write(f"{torch.get_num_threads()}\n")
if "stop" in sys.argv:
    os.kill(os.getpid(), signal.SIGSTOP)
if "sleep" in sys.argv:
    time.sleep(600)
sys.exit(3)
