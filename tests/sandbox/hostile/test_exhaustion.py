"""Programs that loop for ever, take too much memory, print too much or crash."""

import threading
from dataclasses import replace

import pytest

from modnorm.sandbox import Program, Verdict

STOPPED = {
    "endless loop": "while True: pass",
    "endless loop in C": "sum(iter(int, 1))",
    "endless regular expression": "import re; re.match('(a+)+b', 'a' * 60)",
    "huge power": "x = 10 ** 10 ** 9",
    "sleep": "import time; time.sleep(60)",
    "ignores signals": """
        import signal
        for number in range(1, 65):
            try: signal.signal(number, signal.SIG_IGN)
            except (OSError, ValueError): pass
        while True: pass
    """,
    "catches everything": """
        while True:
            try:
                while True: pass
            except BaseException: pass
    """,
    "fork bomb": """
        import os
        while True:
            try: os.fork()
            except OSError: pass
    """,
    "thread bomb": """
        import threading, time
        while True:
            try: threading.Thread(target=threading.Event().wait, daemon=True).start()
            except RuntimeError: time.sleep(0.01)
    """,
    "waits for input": "import os\nr, w = os.pipe()\nos.read(r, 1)",
    "blocks all signals": """
        import signal
        signal.pthread_sigmask(signal.SIG_BLOCK, range(1, 65))
        while True: pass
    """,
}
HOGS = {
    "bytes": "x = bytes(2**31)",
    "list": "x = []\nwhile True: x.append(bytes(10**6))",
    "doubling text": "x = 'a'\nwhile True: x += x",
    "threads' stacks": """
        import threading
        threading.stack_size(2**28)
        for _ in range(8): threading.Thread(target=threading.Event().wait, daemon=True).start()
        x = bytes(2**31)
    """,
    "in the call": "def f(x): return [0] * 10**9",
    "catches MemoryError": """
        import os
        keep = []
        while True:
            try: keep.append(bytes(10**7))
            except MemoryError: os._exit(77)
    """,
}
FLOODS = {
    "print": "while True: print('x' * 1000)",
    "stderr": "import sys\nwhile True: sys.stderr.write('x' * 1000)",
    "raw": "import os\nwhile True: os.write(1, b'x' * 10000)",
    "then exits": "import os\nos.write(1, b'x' * 60000); os.write(2, b'x' * 60000); os._exit(0)",
    "value": "def f(x): return 'x' * 10**6",
}
CRASHES = {
    "deep recursion": "import sys\nsys.setrecursionlimit(10**8)\ndef f(x): return f(x)",
    "C recursion": """
        import sys
        sys.setrecursionlimit(10**8)
        class A:
            def __repr__(self): return repr([self])
        repr(A())
    """,
    "null pointer": "import ctypes; ctypes.string_at(0)",
    "abort": "import os; os.abort()",
    "threads that outlive": """
        import threading, time
        def run():
            while True: time.sleep(0.01)
        for _ in range(4): threading.Thread(target=run).start()
        def f(x): return None
    """,
    "kills itself": "import os, signal\nos.kill(os.getpid(), signal.SIGKILL)\nraise ValueError",
}


@pytest.mark.parametrize("source", STOPPED.values(), ids=STOPPED)
def test_an_endless_program_times_out(attack, limits, source):
    outcome = attack(source, replace(limits, step_seconds=0.7))
    assert outcome.verdict is Verdict.TIMEOUT


@pytest.mark.parametrize("source", HOGS.values(), ids=HOGS)
def test_taking_too_much_memory_has_its_verdict(attack, source):
    outcome = attack(source)
    assert outcome.verdict in {Verdict.MEMORY, Verdict.FAILED}
    assert "emory" in outcome.detail or "thread" in outcome.detail


@pytest.mark.parametrize("source", FLOODS.values(), ids=FLOODS)
def test_printing_too_much_has_its_verdict(attack, source):
    outcome = attack(source)
    assert outcome.verdict is Verdict.OUTPUT
    assert len(outcome.printed) <= 4096


@pytest.mark.parametrize("start", [b"PASSED", b"\xff\xfe\x00\x00", b"\x7f\xff\xff\xff{"])
def test_a_garbage_answer_is_no_size(attack, start):
    outcome = attack(f"import os; os.write(3, {start})")
    assert outcome.verdict is Verdict.FAILED
    assert outcome.detail == (
        f"the program does not speak the sandbox's protocol: its answer begins with {start[:4]}"
    )


def test_the_size_of_a_large_answer_is_reported(attack, limits):
    size = limits.output_bytes + 1
    outcome = attack(f"import os; os.write(3, ({size}).to_bytes(4, 'big') + b'{{')")
    assert outcome.verdict is Verdict.OUTPUT
    assert outcome.detail == f"an answer of {size} bytes"


@pytest.mark.parametrize("source", CRASHES.values(), ids=CRASHES)
def test_crashing_fails(attack, source):
    outcome = attack(source)
    assert outcome.verdict in {Verdict.FAILED, Verdict.MEMORY, Verdict.TIMEOUT}


def test_concurrent_programs_are_isolated(attack, sandbox, honest, tests, limits):
    hostile = list(STOPPED.values())[:8:2]
    threads = [threading.Thread(target=attack, args=(source,)) for source in hostile]
    for thread in threads:
        thread.start()
    outcomes = [sandbox.execute(Program([honest], tests, limits)) for _ in range(5)]
    for thread in threads:
        thread.join()
    assert {outcome.verdict for outcome in outcomes} == {Verdict.PASSED}
