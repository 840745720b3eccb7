"""Tests ignore settings of the shell that starts them."""

import os
import subprocess
import sys
from pathlib import Path

LEFT = """
import os, runpy, sys
runpy.run_path(sys.argv[1])
print(*(name for name in os.environ if name.startswith(("MODNORM_", "OTEL_"))))
"""


def test_settings_of_a_lab_are_ignored():
    shell = {"MODNORM_TLS_CERT": "/nowhere", "MODNORM_SERVER": "lab:1", "OTEL_SDK_DISABLED": "x"}
    conftest = Path(__file__).with_name("conftest.py")
    ran = subprocess.run(
        [sys.executable, "-c", LEFT, conftest],
        env={**os.environ, **shell},
        check=True,
        capture_output=True,
        text=True,
    )
    assert ran.stdout.split() == []
