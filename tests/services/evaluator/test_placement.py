import os
import stat
from pathlib import Path

import pytest

from modnorm.errors import UnavailableError
from modnorm.services.common.settings import SupervisorSettings
from modnorm.services.evaluator.placement import (
    COMPILE_CACHES,
    ENGINES_UNDER_MPS,
    Place,
    chosen_devices,
    engines_per_gpu,
    environment_of,
    fitting_engines,
    free_devices,
    grouped,
)
from tests.faults import error_at

GPUS = 'printf "0, 81559, 3\\n1, 81559, 70000\\n2, 81559, 3\\n"'
"""What the driver says of three GPUs: index, memory, used memory."""


@pytest.fixture
def nvidia_smi(tmp_path, monkeypatch):
    """Put a scripted `nvidia-smi` on the path."""

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
def test_named_devices_are_used(devices, visible, chosen):
    assert chosen_devices(devices, visible) == chosen


def test_all_means_the_devices_of_the_driver(nvidia_smi):
    nvidia_smi(GPUS)
    assert chosen_devices("all", None) == ("0", "1", "2")


def test_a_run_takes_the_gpus_that_nobody_uses_or_that_its_user_chose(nvidia_smi):
    nvidia_smi(GPUS)
    assert free_devices(None) == ("0", "2")
    nvidia_smi("seq -f '%g, 81559, 3' 0 11")
    assert free_devices(None) == tuple(map(str, range(12))), "neighbours stay side by side"
    assert free_devices("1,GPU-8a") == ("1", "GPU-8a")
    assert free_devices("") == ()
    assert free_devices("-1") == ()
    assert free_devices("1,-1,0") == ("1",), "as CUDA reads it"
    nvidia_smi(GPUS.replace(" 3\\n", " 60000\\n", 1).replace(" 3\\n", " 50000\\n"))
    assert free_devices(None) == ("2",), "all are used, the last least"
    nvidia_smi('printf "0, [N/A], [N/A]\\n"')
    assert free_devices(None) == ("0",), "its memory is the host's"
    nvidia_smi("exit 9")
    assert free_devices(None) == ()


def test_a_host_without_gpus_does_not_silently_use_its_cpu(nvidia_smi):
    with pytest.raises(UnavailableError, match="there is no GPU"):
        chosen_devices("all", "")
    nvidia_smi("exit 9")
    with pytest.raises(UnavailableError, match="cannot be counted"):
        chosen_devices("all", None)


@pytest.mark.parametrize(
    ("changes", "engines"),
    [
        ({}, ENGINES_UNDER_MPS),
        ({"mps": "off"}, 1),
        ({"engines_per_gpu": "2", "mps": "off"}, 2),
        ({"engines_per_gpu": "1"}, 1),
        ({"gpus_per_worker": 2}, 1),
    ],
)
def test_engines_share_a_gpu_with_mps_or_on_request(changes, engines):
    assert engines_per_gpu(SupervisorSettings(**changes)) == engines


@pytest.mark.parametrize(
    ("memory", "parameters", "engines"),
    [(141, 0.5e9, 3), (141, 1.5e9, 1), (24, 0.5e9, 2), (12, 0.5e9, 1), (80, 7e9, 1)],
)
def test_only_small_models_share_a_gpu_that_has_room_for_them(memory, parameters, engines):
    assert fitting_engines(int(0.9 * memory * 2**30), int(2 * parameters)) == engines


def test_a_worker_with_several_gpus_shares_none():
    settings = SupervisorSettings(engines_per_gpu="2", gpus_per_worker=2)
    with error_at("engines_per_gpu"):
        engines_per_gpu(settings)


def test_gpus_are_grouped_for_models_that_are_spread():
    assert grouped(("0", "1", "2", "3"), 2) == ("0,1", "2,3")
    assert grouped((), 2) == ()
    with error_at("gpus_per_worker"):
        grouped(("0", "1", "2"), 2)


def test_workers_of_a_gpu_share_its_memory_and_nothing_else():
    settings = SupervisorSettings(
        metrics_address="127.0.0.1:9100", worker_name="host", gpu_memory_utilization=0.9
    )
    places = [Place(3 + slot, "GPU-7", slot, 3) for slot in range(3)]
    given = {"TRITON_CACHE_DIR": "/triton", "HOME": "/root"}
    found = [environment_of(place, settings, given, Path("/run")) for place in places]
    own = ("VLLM_PORT", "MODNORM_BIND_ADDRESS", "MODNORM_WORKER_NAME", "MODNORM_LOAD_LOCK")
    for name in (*COMPILE_CACHES, *own):
        assert len({environment[name] for environment in found}) == 3, name
    assert [environment["MODNORM_METRICS_ADDRESS"] for environment in found] == [
        f"127.0.0.1:910{number}" for number in (3, 4, 5)
    ]
    assert found[1]["TRITON_CACHE_DIR"] == "/triton/4"
    assert sum(float(one["MODNORM_GPU_MEMORY_UTILIZATION"]) for one in found) == pytest.approx(0.9)
    for name in ("CUDA_VISIBLE_DEVICES", "HOME"):
        assert len({environment[name] for environment in found}) == 1, name


def test_a_worker_with_a_whole_gpu_keeps_its_name():
    settings = SupervisorSettings(worker_name="host")
    alone = environment_of(Place(1, "1", 0, 1), settings, {}, Path("/run"))
    assert alone["MODNORM_WORKER_NAME"] == "host-1"
    assert "CUDA_VISIBLE_DEVICES" not in environment_of(
        Place(0, "", 0, 1), settings, {}, Path("/run")
    )
