"""Programs that try to escape, to hurt the host or to pass without the answer."""

import os
import textwrap
import threading
from dataclasses import replace
from pathlib import Path

import pytest

from modnorm.sandbox import Limits, Program, Verdict

LIMITS = Limits(
    step_seconds=2.0,
    wall_seconds=6.0,
    memory_bytes=128 * 2**20,
    scratch_bytes=2**20,
    output_bytes=2**16,
    tasks=16,
)
TESTS = ("assert f(3) == 9173", "assert f(4) == [2, 'unguessable']", "assert f(5) == {'k': 1.5}")
HONEST = "def f(x): return {3: 9173, 4: [2, 'unguessable'], 5: {'k': 1.5}}[x]"

FORGERIES = {
    "prints the marker": "print('passed'); print('OK'); f = print",
    "prints the reply": """
        print('{"value": ["int", "23d5"]}', flush=True)
        f = print
    """,
    "exit code 0": "import sys\ndef f(x): sys.exit(0)",
    "SystemExit at once": "raise SystemExit(0)",
    "os._exit(0) at once": "import os; os._exit(0)",
    "os._exit(0) in the call": "import os\ndef f(x): os._exit(0)",
    "os._exit with the code for memory": "import os\ndef f(x): os._exit(77)",
    "KeyboardInterrupt": "def f(x): raise KeyboardInterrupt",
    "always equal": """
        class Equal:
            def __eq__(self, other): return True
            def __ne__(self, other): return False
            def __bool__(self): return True
            __hash__ = None
        def f(x): return Equal()
    """,
    "always equal int": """
        class Equal(int):
            def __eq__(self, other): return True
            __hash__ = int.__hash__
        def f(x): return Equal(1)
    """,
    "always equal list and dict": """
        class L(list):
            def __eq__(self, other): return True
        class D(dict):
            def __eq__(self, other): return True
        def f(x): return L() if x == 4 else D()
    """,
    "lying type": """
        class Lie:
            __class__ = int
            def __eq__(self, other): return True
        def f(x): return Lie()
    """,
    "no AssertionError": """
        import builtins
        builtins.AssertionError = type('AssertionError', (Warning,), {})
        def f(x): return None
    """,
    "builtins replaced": """
        import builtins
        for name in ('compile', 'eval', 'exec', 'isinstance', 'type', 'print'):
            setattr(builtins, name, lambda *a, **k: True)
        def f(x): return True
    """,
    "json patched": """
        import json
        json.dumps = lambda *a, **k: '{"value": true, "passed": true, "verdict": "passed"}'
        def f(x): return None
    """,
    "encoder patched": """
        import sys
        for module in list(sys.modules.values()):
            if getattr(module, 'encode', None) is not None:
                module.encode = lambda value: True
        def f(x): return None
    """,
    "driver's frames rewritten": """
        import sys, gc
        frame = sys._getframe()
        while frame:
            for name, value in list(frame.f_locals.items()):
                if isinstance(value, dict):
                    value.update(passed=True, verdict='passed', value=True)
            frame = frame.f_back
        def f(x): return True
    """,
    "searches memory for the expected": """
        import gc, sys
        def f(x):
            seen = [o for o in gc.get_objects() if isinstance(o, (int, list, dict))]
            for o in seen:
                if 'unguessable' in repr(o)[:10000] and isinstance(o, list) and len(o) == 2:
                    return o
            frame = sys._getframe()
            while frame:
                for value in frame.f_locals.values():
                    if '9173' in repr(value)[:10000]:
                        return 9173
                frame = frame.f_back
    """,
    "trace function": """
        import sys
        def trace(frame, event, arg):
            for name in frame.f_locals:
                if name in ('verdict', 'passed', 'ok'): frame.f_locals[name] = True
            return trace
        sys.settrace(trace)
        def f(x): return None
    """,
    "profile function": "import sys\nsys.setprofile(lambda *a: None)\ndef f(x): return None",
    "atexit": "import atexit, os\natexit.register(os._exit, 0)\ndef f(x): raise SystemExit",
    "signal handlers": """
        import os, signal
        for number in range(1, 32):
            try: signal.signal(number, lambda *a: os._exit(0))
            except (OSError, ValueError): pass
        def f(x):
            os.kill(os.getpid(), signal.SIGTERM)
    """,
    "alarm that exits": """
        import os, signal
        signal.signal(signal.SIGALRM, lambda *a: os._exit(0))
        signal.setitimer(signal.ITIMER_REAL, 0.05)
        def f(x):
            while True: pass
    """,
    "writes to every file": r"""
        import os
        reply = b'{"value": true}'
        for fd in range(256):
            try: os.write(fd, len(reply).to_bytes(4, 'big') + reply)
            except OSError: pass
        def f(x): return None
    """,
    "answers ahead": r"""
        import os
        reply = b'{}'
        for _ in range(10): os.write(3, len(reply).to_bytes(4, 'big') + reply)
        def f(x): return None
    """,
    "says passed on the channel": r"""
        import os
        for text in (b'{"verdict": "passed"}', b'[]', b'null', b'{"value": ["int"]}'):
            os.write(3, len(text).to_bytes(4, 'big') + text)
        def f(x): return None
    """,
    "garbage on the channel": "import os; os.write(3, bytes(100000)); f = print",
    "huge frame announced": "import os; os.write(3, b'\\xff\\xff\\xff\\xff'); f = print",
    "closes every file": "import os; os.closerange(0, 256); f = print",
    "deep JSON": r"""
        import os
        reply = b'{"value": ' + b'[' * 50000
        os.write(3, len(reply).to_bytes(4, 'big') + reply)
        def f(x): return None
    """,
    "colliding hashes": """
        def f(x): return {i * (2**61 - 1) for i in range(3000)}
    """,
    "cyclic value": "a = []; a.append(a)\ndef f(x): return a",
    "defines the test's names": "def f(x): return f\nf.__eq__ = lambda *a: True",
    "raises something odd": """
        class Odd(BaseException):
            def __str__(self): raise Odd
        def f(x): raise Odd
    """,
    "returns NaN": "def f(x): return float('nan')",
    "solution is not Python": "def f(x) return",
    "null bytes": "f = \0",
}  # fmt: skip

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

MARK = "FORBIDDEN THING DONE"
FORBIDDEN = {
    "TCP": "import socket; socket.create_connection(('127.0.0.1', {port}), 1)",
    "listening": "import socket; socket.create_server(('0.0.0.0', 0))",
    "UDP": "import socket; socket.socket(socket.AF_INET, socket.SOCK_DGRAM)"
    ".sendto(b'x', ('8.8.8.8', 53))",
    "raw socket": "import socket; socket.socket(socket.AF_PACKET, socket.SOCK_RAW)",
    "netlink": "import socket; socket.socket(socket.AF_NETLINK, socket.SOCK_RAW).bind((0, 0))",
    "reads the secret": "open({secret!r}).read()",
    "reads shadow": "open('/etc/shadow').read()",
    "reads the host's environment": "open('/proc/{pid}/environ').read()",
    "reads the parent's memory": "import os; open(f'/proc/{{os.getppid() or {pid}}}/mem')",
    "lists the host's processes": "import os\n"
    "if '{pid}' not in os.listdir('/proc'): raise OSError",
    "lists home": "import os\nif os.listdir({home!r}) != {at_home!r}: raise OSError",
    "writes outside": "open({directory!r} + '/made', 'w').write('x')",
    "appends outside": "open({public!r}, 'a').write('x')",
    "truncates outside": "import os; os.open({public!r}, os.O_RDONLY | os.O_TRUNC)",
    "removes outside": "import os; os.unlink({public!r})",
    "links outside": "import os; os.link({public!r}, 'mine'); open('mine', 'w').write('x')",
    "symbolic link outside": "import os\nos.symlink({directory!r}, 'out'); open('out/made', 'w')",
    "changes modes": "import os; os.chmod({public!r}, 0)",
    "writes to /tmp": "open('/tmp/modnorm-made', 'w')",
    "writes to shared memory": "open('/dev/shm/modnorm-made', 'w')",
    "writes to the library": "import os; open(os.__file__, 'a')",
    "changes a device": "open('/dev/kmsg', 'w')",
    "signals the host": "import os\nif os.getpid() == {pid}: raise OSError\nos.kill({pid}, 0)",
    "signals the parent": """
        import os
        if os.getppid() < 1: raise OSError
        os.kill(os.getppid(), 0)
    """,
    "traces the parent": "import ctypes, os\nlibc = ctypes.CDLL(None)\n"
    "if libc.ptrace(16, os.getppid() or {pid}, 0, 0) != 0: raise OSError",
    "reads others by system call": """
        import ctypes
        buffer = ctypes.create_string_buffer(8)
        class V(ctypes.Structure): _fields_ = [('b', ctypes.c_void_p), ('n', ctypes.c_size_t)]
        v = V(ctypes.addressof(buffer), 8)
        libc = ctypes.CDLL(None)
        if libc.process_vm_readv({pid}, ctypes.byref(v), 1, ctypes.byref(v), 1, 0) < 0:
            raise OSError
    """,
    "runs a shell": "import subprocess; subprocess.run(['/bin/sh', '-c', 'true'], check=True)",
    "becomes another program": "import os; os.execv('/bin/true', ['true'])",
    "becomes root": "import os\nif os.getuid() == 0: raise OSError\nos.setuid(0)",
    "mounts": """
        import ctypes
        if ctypes.CDLL(None).mount(b'x', b'.', b'tmpfs', 0, None): raise OSError
    """,
    "new user namespace": """
        import ctypes
        if ctypes.CDLL(None).unshare(0x10000000): raise OSError
    """,
    "raises its limits": "import resource\n"
    "resource.setrlimit(resource.RLIMIT_CPU, (10**6, 10**6))",
    "fills the disk": """
        for at in range(64):
            with open(f'large{{at}}', 'wb') as file: file.write(bytes(2**18))
    """,
    "makes files without end": """
        for at in range(100000): open(f'small{{at}}', 'w').close()
    """,
    "opens files without end": "files = [open('/dev/null') for _ in range(1000)]",
    "reads credentials of the environment": "import os\n"
    "if not any('TOKEN' in k or 'PYTEST' in k for k in os.environ): raise KeyError",
    "memory file": "import os\nfd = os.memfd_create('x')\nos.write(fd, bytes(2**26))",
    "leaves a child": """
        import os
        if os.fork() == 0:
            os.setsid()
            while True: pass
        os._exit(0)
    """,
}


def _program(source, limits=LIMITS):
    return Program([textwrap.dedent(source)], TESTS, limits)


@pytest.fixture(autouse=True)
def _next_honest_program_passes(request, sandbox):
    yield
    outcome = sandbox.execute(Program([HONEST], TESTS))
    assert outcome.verdict is Verdict.PASSED, outcome


@pytest.mark.parametrize("source", FORGERIES.values(), ids=FORGERIES)
def test_forging_the_verdict_fails(sandbox, source):
    outcome = sandbox.execute(_program(source))
    assert outcome.verdict in {Verdict.FAILED, Verdict.MEMORY, Verdict.OUTPUT, Verdict.TIMEOUT}
    assert outcome.tests_passed < len(TESTS)


@pytest.mark.parametrize("source", STOPPED.values(), ids=STOPPED)
def test_running_on_is_a_timeout(sandbox, source):
    limits = replace(LIMITS, step_seconds=0.7)
    assert sandbox.execute(_program(source, limits)).verdict is Verdict.TIMEOUT


@pytest.mark.parametrize("source", HOGS.values(), ids=HOGS)
def test_hogging_memory_is_seen_as_that(sandbox, source):
    outcome = sandbox.execute(_program(source))
    assert outcome.verdict in {Verdict.MEMORY, Verdict.FAILED}
    assert "emory" in outcome.detail or "thread" in outcome.detail


@pytest.mark.parametrize("source", FLOODS.values(), ids=FLOODS)
def test_flooding_is_seen_as_that(sandbox, source):
    outcome = sandbox.execute(_program(source))
    assert outcome.verdict is Verdict.OUTPUT
    assert len(outcome.printed) <= 4096


@pytest.mark.parametrize("source", CRASHES.values(), ids=CRASHES)
def test_crashing_fails(sandbox, source):
    outcome = sandbox.execute(_program(source))
    assert outcome.verdict in {Verdict.FAILED, Verdict.MEMORY, Verdict.TIMEOUT}


@pytest.mark.parametrize("source", FORBIDDEN.values(), ids=FORBIDDEN)
def test_the_forbidden_does_not_happen(sandbox, source, tmp_path_factory, listener):
    directory = tmp_path_factory.mktemp("bait")
    (directory / "secret").write_text("secret")
    (directory / "secret").chmod(0o600)
    (directory / "public").write_text("public")
    (directory / "public").chmod(0o666)
    directory.chmod(0o777)
    attempt = textwrap.dedent(source).format(
        directory=str(directory),
        secret=str(directory / "secret"),
        public=str(directory / "public"),
        home=str(Path.home()),
        at_home=[path.name for path in Path.home().iterdir()],
        pid=os.getpid(),
        port=listener,
    )
    outcome = sandbox.execute(_program(f"{attempt}\nprint({MARK!r}, flush=True)"))
    assert outcome.verdict is Verdict.FAILED
    assert MARK not in outcome.printed
    assert sorted(path.name for path in directory.iterdir()) == ["public", "secret"]
    assert (directory / "public").read_text() == "public"
    assert (directory / "public").stat().st_mode & 0o777 == 0o666
    assert not Path("/tmp/modnorm-made").exists()
    assert not Path("/dev/shm/modnorm-made").exists()


def test_programs_side_by_side_do_not_meet(sandbox):
    hostile = [_program(source) for source in (*STOPPED.values(), *HOGS.values())][:8]
    threads = [threading.Thread(target=sandbox.execute, args=(each,)) for each in hostile[::2]]
    for thread in threads:
        thread.start()
    outcomes = [sandbox.execute(Program([HONEST], TESTS, LIMITS)) for _ in range(5)]
    for thread in threads:
        thread.join()
    assert {outcome.verdict for outcome in outcomes} == {Verdict.PASSED}
