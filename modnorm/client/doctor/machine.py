"""This machine: its packages, devices, disk, model and sandbox."""

import os
import platform
import shutil
import tempfile
from collections.abc import Iterator
from functools import partial
from importlib import metadata
from pathlib import Path

from packaging.requirements import Requirement

from modnorm.checkpoint.reference import bundled_models, resolve_checkpoint
from modnorm.client.doctor.findings import Finding, broken, examine, ok, warning
from modnorm.host import default_cache

MODEL_DIGESTS = {
    "tiny-thicket": "c404745383921b34e9ef889eb08cadddf4c202966526a7286bb9c4eb28613be9"
}
"""Digests of the bundled models, as released."""
FREE_BYTES = 2**30
"""Free disk below which runs are likely to fill it: answers, profiles, scale maps."""
_NVIDIA = Path("/proc/driver/nvidia/version")
_SHOWN = ("modnorm", "torch", "transformers", "grpcio")


def check_machine(cache: Path | None, *, driver: Path = _NVIDIA) -> Iterator[Finding]:
    """Yield the findings about this machine.

    Args:
        cache: Directory that runs share; None for the default.
        driver: File that exists if there is an NVIDIA driver.
    """
    yield from examine(
        (
            ("python", _check_python),
            ("packages", _check_packages),
            ("device", partial(_check_device, driver)),
            ("disk", partial(_check_disk, cache)),
            *((f"model {name}", partial(check_model, name)) for name in bundled_models()),
            ("sandbox", _check_sandbox),
        )
    )


def _check_python() -> Finding:
    return ok("python", f"{platform.python_version()} on {platform.platform()}")


def _check_packages() -> Finding:
    """Compare installed packages with the requirements."""
    bad = [
        problem
        for text in metadata.requires("modnorm") or ()
        if (problem := _unmet(Requirement(text)))
    ]
    if bad:
        return broken("packages", "; ".join(bad), "install modnorm anew: pip install -e .")
    versions = (f"{name} {metadata.version(name)}" for name in _SHOWN)
    return ok("packages", ", ".join(versions))


def _unmet(requirement: Requirement) -> str | None:
    """Return the fault of a package; packages of extras may be missing."""
    extra = requirement.marker is not None and not requirement.marker.evaluate({"extra": ""})
    if extra:
        return None
    try:
        found = metadata.version(requirement.name)
    except metadata.PackageNotFoundError:
        return f"{requirement.name} is not installed"
    if requirement.specifier.contains(found, prereleases=True):
        return None
    return f"{requirement.name} is {found}, not {requirement.specifier}"


def _check_device(driver: Path) -> Finding:
    import torch  # noqa: PLC0415 - takes seconds

    if torch.cuda.is_available():
        names = [torch.cuda.get_device_name(index) for index in range(torch.cuda.device_count())]
        return ok("device", f"CUDA {torch.version.cuda}: {', '.join(names)}")
    if not driver.exists():
        return ok(
            "device", f"no GPU; {os.cpu_count()} CPUs, torch threads: {torch.get_num_threads()}"
        )
    return broken(
        "device",
        f"there is an NVIDIA driver, and torch {torch.__version__} sees no GPU",
        "install a torch with CUDA that the driver supports; see CUDA_VISIBLE_DEVICES and, in a "
        "container, whether it was given GPUs",
    )


def _check_disk(given: Path | None) -> Finding:
    """Write to the cache directory, and check the free space."""
    cache = given or default_cache()
    remedy = "set MODNORM_CACHE_DIR to a directory of yours with room"
    try:
        cache.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=cache) as file:
            file.write(b"\0" * 4096)
        free = shutil.disk_usage(cache).free
    except OSError as error:
        return broken("disk", f"cannot write to {cache}: {error.strerror}", remedy)
    detail = f"{free / 2**30:.1f} GiB free under {cache}"
    return ok("disk", detail) if free >= FREE_BYTES else warning("disk", detail, remedy)


def check_model(name: str) -> Finding:
    """Compare a bundled model, byte for byte, with the released one."""
    check = f"model {name}"
    digest = resolve_checkpoint(name).digest
    if digest != MODEL_DIGESTS.get(name):
        remedy = "install modnorm anew: results of this model would compare with nobody's"
        return broken(check, f"its digest is {digest[:12]}, not the released one", remedy)
    return ok(check, f"digest {digest[:12]}")


def _check_sandbox() -> Finding:
    from modnorm.sandbox import Sandbox  # noqa: PLC0415 - not imported by other commands

    with Sandbox() as sandbox:
        isolation = sandbox.measure()
    if isolation.healthy:
        return ok("sandbox", f"isolates: {isolation.summary}")
    seen = "; ".join(f"{name}: {what}" for name, what in isolation.broken.items())
    return warning(
        "sandbox",
        f"does not isolate ({seen}): tasks whose answers are programs are refused here",
        "docs/sandbox.md lists what the kernel must allow",
    )
