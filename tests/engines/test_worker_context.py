import os
import subprocess
import sys

from modnorm.engines.vllm.worker_context import WorkerContext, preload_workers

NAMES = ("MODNORM_CHANGED", "MODNORM_REMOVED", "OMP_NUM_THREADS")


def send_variables(pipe):
    pipe.send([os.environ.get(name) for name in NAMES])


def test_a_worker_has_the_environment_of_its_parent(monkeypatch):
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    monkeypatch.setenv("MODNORM_REMOVED", "when the server runs")
    preload_workers([])
    monkeypatch.delenv("MODNORM_REMOVED")
    context = WorkerContext()
    for value, threads in (("first", None), ("second", "2")):
        monkeypatch.setenv("MODNORM_CHANGED", value)
        if threads:
            monkeypatch.setenv("OMP_NUM_THREADS", threads)
        here, there = context.Pipe()
        worker = context.Process(target=send_variables, args=(there,))
        worker.start()
        assert here.recv() == [value, None, threads]
        worker.join()
        assert worker.exitcode == 0


MAIN = """
from modnorm.engines.vllm.worker_context import WorkerContext, preload_workers

if __name__ == "__main__":
    preload_workers(["shadowing"])
    worker = WorkerContext().Process(target=print)
    worker.start()
    worker.join()
    raise SystemExit(worker.exitcode)
"""


def test_the_server_imports_nothing_from_the_current_directory(tmp_path):
    (tmp_path / "shadowing.py").write_text("open('imported', 'x')")
    (tmp_path / "scripts").mkdir()
    script = tmp_path / "scripts" / "main.py"
    script.write_text(MAIN)
    subprocess.run([sys.executable, str(script)], cwd=tmp_path, check=True)
    assert not (tmp_path / "imported").exists()
