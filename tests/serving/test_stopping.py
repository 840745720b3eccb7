"""A server that is stopped while it loads: a process of its own, and its end."""

import signal
import subprocess
import sys
import time
from pathlib import Path

from verification.labs.waiting import wait_until

SERVER = """
import multiprocessing, pathlib, signal, sys, time
from modnorm.checkpoint.reference import resolve_checkpoint
from modnorm import engines
from modnorm.cli import predict, serving
from modnorm.geometry.scale_map import ScaleMap
from modnorm.perturbation.descriptor import Descriptor
from modnorm.prediction.ensemble_definition import EnsembleDefinition, Expert, TaskIdentity
from modnorm.spec import ModelSpec

def load(*_):
    child = multiprocessing.get_context("spawn").Process(target=time.sleep, args=(600,))
    child.start()
    pathlib.Path(sys.argv[1]).write_text(str(child.pid))
    time.sleep(600)

if __name__ == "__main__":
    # A shell's background jobs ignore SIGINT, and their children inherit that.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    engines.load_engine = load
    base = resolve_checkpoint("tiny-thicket")
    expert = Expert(0, Descriptor("portable-v1", 1, "randopt", 0.1, "m", ()))
    definition = EnsembleDefinition(
        ModelSpec(name="tiny-thicket"), base.digest, TaskIdentity("gsm8k", "gsm8k-v3", None, 64),
        ScaleMap("randopt", base.digest, ()), 1, (expert,),
    )
    predict.open_ensemble = lambda *_: (definition, base)
    serving.serve("run", port=0, engine="transformers")
"""
"""A server whose engine takes ten minutes to load, in a thread and a process below it."""


def test_a_server_that_loads_ends_at_once_with_its_children(tmp_path):
    script, child = tmp_path / "server.py", tmp_path / "child"
    script.write_text(SERVER)
    with subprocess.Popen(
        [sys.executable, script, child], stderr=subprocess.PIPE, text=True, cwd=tmp_path
    ) as server:
        try:
            wait_until(lambda: child.exists() and child.read_text(), "the engine loads")
            begun = time.monotonic()
            server.send_signal(signal.SIGINT)
            _, errors = server.communicate(timeout=30)
        finally:
            server.kill()
    assert server.returncode == 130
    assert "Traceback" not in errors
    assert time.monotonic() - begun < 10
    wait_until(lambda: not is_running(int(child.read_text())), "the child has ended")


def is_running(process):
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):  # it may end before it is read
        return False
