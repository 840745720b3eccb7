import os
import subprocess
import sys

START = """
import os

from modnorm.engines.vllm import worker_context

before = dict(os.environ)
worker_context.MODULES = ["shadowing"]
worker_context.preload_workers()
assert os.environ == before
del os.environ["REMOVED"]
os.environ |= {"CHANGED": "new", "OMP_NUM_THREADS": "2"}
worker = worker_context.WorkerContext().Process(target=exec, args=(CHECK,))
worker.start()
worker.join()
raise SystemExit(worker.exitcode)
"""
CHECK = """
import os

import torch

assert "REMOVED" not in os.environ
assert os.environ["CHANGED"] == "new"
assert torch.get_num_threads() == 2
"""


def test_a_worker_has_the_state_of_its_parent_and_not_that_of_the_server(tmp_path):
    (tmp_path / "shadowing.py").write_text("open('imported', 'x')")
    command = START.replace("CHECK", repr(CHECK))
    environment = os.environ | {"REMOVED": "old", "CHANGED": "old"}
    subprocess.run([sys.executable, "-c", command], cwd=tmp_path, env=environment, check=True)
    assert not (tmp_path / "imported").exists(), "the current directory is not searched"
