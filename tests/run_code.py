"""`python -m tests.run_code CODE ARGUMENTS` runs code as `python -c` does; a fork server can."""

import sys

code = sys.argv[1]
sys.argv = ["-c", *sys.argv[2:]]
exec(compile(code, "<code>", "exec"), {"__name__": "__main__"})
