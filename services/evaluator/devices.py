"""The GPUs of a host that get a worker."""

import subprocess
from collections.abc import Sequence

from modnorm.errors import InvalidInputError, UnavailableError

EVERY = "all"
_QUERY = ("nvidia-smi", "--query-gpu=index", "--format=csv,noheader")


def chosen_devices(devices: str, visible: str | None) -> tuple[str, ...]:
    """Return the CUDA device of each worker; none for a single worker on the CPU.

    Args:
        devices: `all`, a list such as `0,1`, or empty.
        visible: CUDA_VISIBLE_DEVICES, where it is set: what `all` means.

    Raises:
        InvalidInputError: a device is named twice.
        UnavailableError: all are asked for, and there are none.
    """
    if devices != EVERY:
        return _distinct(_split(devices))
    found = _query() if visible is None else _split(visible)
    if not found:
        raise UnavailableError(
            "there is no GPU",
            field="devices",
            remedy="give the container GPUs, or leave MODNORM_DEVICES empty for CPUs",
        )
    return _distinct(found)


def _split(text: str) -> tuple[str, ...]:
    return tuple(name.strip() for name in text.split(",") if name.strip())


def _distinct(devices: Sequence[str]) -> tuple[str, ...]:
    if len(set(devices)) != len(devices):
        raise InvalidInputError(
            f"a device is named twice: {','.join(devices)}",
            field="devices",
            remedy="name each GPU once in MODNORM_DEVICES",
        )
    return tuple(devices)


def _query() -> tuple[str, ...]:
    try:
        ended = subprocess.run(_QUERY, check=True, capture_output=True, text=True, timeout=60)
    except (OSError, subprocess.SubprocessError) as error:
        raise UnavailableError(
            f"the GPUs cannot be counted: {error}",
            field="devices",
            remedy="give the container the driver's tools, or list GPUs in MODNORM_DEVICES",
        ) from error
    return tuple(ended.stdout.split())
