import os
import stat

import pytest

from modnorm.errors import InvalidInputError, UnavailableError
from services.evaluator.devices import chosen_devices


@pytest.fixture
def nvidia_smi(tmp_path, monkeypatch):
    """Put a driver's tool on the path that says what it is told to."""

    def install(script):
        tool = tmp_path / "nvidia-smi"
        tool.write_text(f"#!/bin/sh\n{script}\n")
        tool.chmod(tool.stat().st_mode | stat.S_IXUSR)
        monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")

    return install


@pytest.mark.parametrize(
    ("devices", "visible", "chosen"),
    [
        ("", None, ()),
        ("", "0,1", ()),
        ("0,1", None, ("0", "1")),
        (" 2 ,", None, ("2",)),
        ("all", "3,GPU-8a", ("3", "GPU-8a")),
    ],
)
def test_devices_are_those_that_are_named(devices, visible, chosen):
    assert chosen_devices(devices, visible) == chosen


def test_all_devices_are_those_of_the_driver(nvidia_smi):
    nvidia_smi('test "$1" = --query-gpu=index && printf "0\\n1\\n2\\n"')
    assert chosen_devices("all", None) == ("0", "1", "2")


def test_a_host_without_gpus_does_not_quietly_take_its_cpu(nvidia_smi):
    with pytest.raises(UnavailableError, match="there is no GPU"):
        chosen_devices("all", "")
    nvidia_smi("exit 9")
    with pytest.raises(UnavailableError, match="cannot be counted"):
        chosen_devices("all", None)


def test_a_device_gets_one_worker():
    with pytest.raises(InvalidInputError, match="named twice"):
        chosen_devices("0,1,0", None)
