"""Programs that try to pass without the right answer."""

import pytest

from modnorm.sandbox import Verdict

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


@pytest.mark.parametrize("source", FORGERIES.values(), ids=FORGERIES)
def test_forging_the_verdict_fails(attack, tests, source):
    outcome = attack(source)
    assert outcome.verdict in {Verdict.FAILED, Verdict.MEMORY, Verdict.OUTPUT, Verdict.TIMEOUT}
    assert outcome.tests_passed < len(tests)
