import os
import subprocess
import sys

from modnorm.engines.vllm.worker_context import WorkerContext, preload_workers


def send_variables(pipe):
    pipe.send([os.environ.get(name) for name in ("MODNORM_REMOVED", "OMP_NUM_THREADS")])


def test_a_worker_has_the_environment_of_its_parent(monkeypatch):
    monkeypatch.setenv("MODNORM_REMOVED", "when the server runs")
    preload_workers([])
    monkeypatch.delenv("MODNORM_REMOVED")
    context = WorkerContext()
    for threads in ("1", "2"):
        monkeypatch.setenv("OMP_NUM_THREADS", threads)
        here, there = context.Pipe()
        worker = context.Process(target=send_variables, args=(there,))
        worker.start()
        assert here.recv() == [None, threads]
        worker.join()
        assert worker.exitcode == 0


COMMAND = """
from modnorm.engines.vllm.worker_context import WorkerContext, preload_workers
preload_workers(["shadowing"])
worker = WorkerContext().Process(target=print)
worker.start()
worker.join()
"""


def test_the_server_imports_nothing_from_the_current_directory(tmp_path):
    (tmp_path / "shadowing.py").write_text("open('imported', 'x')")
    subprocess.run([sys.executable, "-c", COMMAND], cwd=tmp_path, check=True)
    assert not (tmp_path / "imported").exists()
