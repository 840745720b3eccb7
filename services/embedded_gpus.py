"""The evaluators of an embedded lab on a host with GPUs: processes under a supervisor."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from modnorm.errors import InvalidInputError, UnavailableError
from modnorm.services.common.model_resolution import resolve_model
from modnorm.services.common.settings import SupervisorSettings, inherited_environment
from modnorm.services.evaluator.placement import (
    chosen_devices,
    fitting_engines,
    free_devices,
    query_gpus,
)
from modnorm.services.evaluator.supervisor import Supervisor
from modnorm.v1 import evaluation_pb2 as messages

_FIRST_JOB = "first-job.binpb"
_MOST_FAILURES = 5
"""Ends of an evaluator in a row, about half a minute apart, after which a run gives up."""
_STOP_SECONDS = 1.0
"""Short, since a user waits in the foreground. The lab's next start releases all leases."""
_OTHER_LABS = (
    "ACCEPTED_TOKENS", "BROKER_PASSWORD_FILE", "METRICS_ADDRESS", "TLS_CA", "TLS_CERT",
    "TLS_CLIENT_CERTIFICATES", "TLS_KEY", "TOKEN_FILE",
)  # fmt: skip
"""Settings of the environment that concern another lab."""


def embedded_devices() -> tuple[str, ...]:
    """Return the GPUs for evaluators: those of MODNORM_DEVICES, by default all that are free."""
    settings = SupervisorSettings()
    if "devices" in settings.model_fields_set:
        return chosen_devices(settings.devices, settings.visible_devices)
    return free_devices(settings.visible_devices)


def make_supervisor(
    settings: SupervisorSettings, devices: Sequence[str], job: messages.Job, state: Path
) -> Supervisor:
    """Return a supervisor whose workers load a job's model at their start.

    It reads files and calls the driver, so it blocks.
    """
    first = state / _FIRST_JOB
    first.write_bytes(job.SerializeToString())
    ranks = job.engine.tensor_parallel_size or 1
    if ranks > len(devices):
        raise InvalidInputError(
            f"{ranks} GPUs are asked for, and the run has {len(devices)}",
            field="engine.tensor_parallel_size",
            remedy="lower it; MODNORM_DEVICES names the GPUs of a run, by default all free ones",
        )
    whole = len(devices) - len(devices) % ranks
    return Supervisor(
        settings.model_copy(update={"gpus_per_worker": ranks}),
        devices[:whole],
        most_engines=_most_engines(settings, devices, job),
        most_failures=_MOST_FAILURES,
        stop_seconds=_STOP_SECONDS,
        environment=_environment(settings, first),
    )


def _most_engines(settings: SupervisorSettings, devices: Sequence[str], job: messages.Job) -> int:
    """Return how many engines of a job's model share a GPU well."""
    folder = resolve_model(job.model, None).directory
    weights = sum(file.stat().st_size for file in folder.glob("*.safetensors"))
    try:
        gpus = query_gpus()
    except UnavailableError:
        return 1
    memory = min((gpu.total for gpu in gpus if gpu.device in devices), default=0)
    if not memory:  # devices named by their identifiers
        memory = min((gpu.total for gpu in gpus), default=0)
    return fitting_engines(int(memory * settings.gpu_memory_utilization), weights)


def _environment(settings: SupervisorSettings, first_job: Path) -> Mapping[str, str]:
    kept = inherited_environment()
    for name in _OTHER_LABS:
        kept.pop(f"MODNORM_{name}", None)
    changes = {
        "AGGREGATOR_TARGET": settings.aggregator_target,
        "BROKER_URL": settings.broker_url,
        "CACHE_DIR": settings.cache,
        "FIRST_JOB": first_job,
        "HEARTBEAT_SECONDS": settings.heartbeat_seconds,
        "MODEL_ROOTS": "/",
        "SANDBOX_TARGET": settings.sandbox_target,
        "STOP_GRACE": settings.stop_grace,
        "TOKEN": settings.token.get_secret_value(),
    }
    return kept | {f"MODNORM_{name}": str(value) for name, value in changes.items()}
