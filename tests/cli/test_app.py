import inspect
import subprocess
import sys
from pkgutil import resolve_name

import pytest

from modnorm import errors
from modnorm.cli.app import exit_code
from modnorm.cli.commands import COMMANDS


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (errors.InvalidInputError, 2),
        (errors.NotFoundError, 2),
        (errors.ConflictError, 2),
        (errors.StaleLeaseError, 2),
        (errors.UnavailableError, 1),
        (errors.EvaluationError, 1),
    ],
)
def test_exit_codes_tell_whose_turn_it_is(error, code):
    assert exit_code(error("x")) == code


@pytest.mark.parametrize(("name", "command"), COMMANDS.items())
def test_the_line_of_a_command_is_the_first_of_its_own_help(name, command):
    if not isinstance(found := resolve_name(command.place), dict):
        assert " ".join(str(inspect.getdoc(found)).split()).startswith(command.line), name


@pytest.mark.parametrize("flags", [(), ("--json",)])
def test_a_fault_of_the_disk_is_one_line(modnorm, monkeypatch, flags):
    def fail(_name):
        raise OSError(28, "No space left on device", "/data/report.html")

    monkeypatch.setattr("modnorm.cli.specs.emit_json", fail)
    code, out, err = modnorm("methods", *flags)
    assert (code, out) == (1, "")
    assert "/data/report.html: No space left on device" in err
    assert err.count("\n") == 1


def test_line_breaks_in_an_error_are_spelt_out(modnorm, monkeypatch):
    def fail(_name):
        raise errors.EvaluationError("ValueError: boom\nx\u2028y\x1b", remedy="fix\nit")

    monkeypatch.setattr("modnorm.cli.specs.emit_json", fail)
    code, _, err = modnorm("methods")
    assert (code, err) == (1, "error: ValueError: boom\\nx\\u2028y\\x1b (fix\\nit)\n")


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("MODNORM_TIMEOUT", "soon"),
        ("MODNORM_TIMEOUT", "inf"),
        ("MODNORM_TIMEOUT", "nan"),
        ("MODNORM_CACHE_DIR", ""),
        ("MODNORM_TLS_CA", ""),
    ],
)
def test_a_wrong_setting_names_its_variable(refusal, monkeypatch, name, value):
    monkeypatch.setenv(name, value)
    assert name in refusal("list")


@pytest.mark.parametrize(
    ("line", "words"),
    [
        (("votes", "run", "--row", "-1"), "'--row': must be at least 0"),
        (("plan", "spec.yaml", "--workers", "0"), "'--workers': must be at least 1"),
        (("run", "spec.yaml", "--seed", "1.5"), "'--seed': must be a whole number, not '1.5'"),
    ],
)
def test_a_wrong_value_of_an_option_is_refused_in_our_words(refusal, line, words):
    err = refusal(*line)
    assert err.startswith(f"error: invalid value for {words} (modnorm {line[0]} --help)")


STREAMS = """
import os, sys
null = os.stat(os.devnull).st_rdev
if any(os.fstat(number).st_rdev != null for number in (0, 1, 2)):
    sys.exit(1)
"""
CLOSED = f"""
import subprocess, sys
from modnorm.cli import main
from modnorm.process_output import own_stream

try:
    main()
except SystemExit as ended:
    own_stream("stdout").buffer.write(b"answer")
    if ended.code:
        raise
{STREAMS}
subprocess.run([sys.executable, "-c", {STREAMS!r}], check=True)
"""


def test_closed_streams_are_those_of_the_null_device_in_child_processes_too():
    closed = 'exec "$0" "$@" <&- >&- 2>&-'
    subprocess.run(["sh", "-c", closed, sys.executable, "-c", CLOSED, "--version"], check=True)
