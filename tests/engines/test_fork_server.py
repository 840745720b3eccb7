import os

from modnorm.engines.vllm.fork_server import WorkerContext, start_fork_server


def send_variable(pipe, name):
    pipe.send(os.environ.get(name))


def test_a_worker_has_the_environment_of_its_parent(monkeypatch):
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    start_fork_server()
    assert "OMP_NUM_THREADS" not in os.environ
    context = WorkerContext()
    for value in ("first", "second"):
        monkeypatch.setenv("MODNORM_PARENTS_VARIABLE", value)
        here, there = context.Pipe()
        worker = context.Process(target=send_variable, args=(there, "MODNORM_PARENTS_VARIABLE"))
        worker.start()
        assert here.recv() == value
        worker.join()
        assert worker.exitcode == 0
