"""Settings of the services, from environment variables that start with MODNORM_."""

import math
import os
from pathlib import Path
from typing import Annotated, Literal
from urllib.parse import quote, urlsplit

from pydantic import BeforeValidator, Field, model_validator
from pydantic_settings import BaseSettings, NoDecode, SettingsConfigDict

from modnorm.errors import InvalidInputError
from modnorm.files import read_fault
from modnorm.host import default_cache
from modnorm.wire.connection import (
    Address,
    ConnectionSettings,
    GivenPath,
    Target,
    WebAddress,
    split_paths,
)

Roots = Annotated[tuple[Path, ...] | None, NoDecode, BeforeValidator(split_paths)]
"""Directories that files may be read from; None allows all, for embedded runs only."""


def _split_names(value: object) -> object:
    if not isinstance(value, str):
        return value
    return tuple(name.strip().lower() for name in value.split(",") if name.strip())


Names = Annotated[tuple[str, ...], NoDecode, BeforeValidator(_split_names)]


class ServiceSettings(ConnectionSettings):
    """Settings of every service.

    With a certificate a service accepts TLS only. It presents the same certificate, `tls_ca` and
    the token to the services that it calls.
    """

    bind_address: Address = "127.0.0.1:50051"
    """HOST:PORT to listen on; port 0 takes a free one."""
    log_level: Literal["DEBUG", "INFO", "WARNING", "ERROR"] = "INFO"
    metrics_address: WebAddress = ""
    """HOST:PORT of Prometheus metrics; empty switches them off."""
    accepted_tokens: GivenPath | None = None
    """File of accepted tokens, from `modnorm token create`; without it callers need none."""
    allow_anonymous: bool = False
    """Require no tokens even on addresses other than loopback."""
    tls_client_certificates: bool = False
    """Refuse callers without a certificate of `tls_ca` (mutual TLS)."""
    stop_grace: float = Field(default=10.0, ge=0)
    """Seconds that present calls have to finish when the service stops."""
    model_roots: Roots = ()
    """Directories that may contain local models, separated as in PATH."""
    data_roots: Roots = ()
    """Directories that may contain local data and profile files, separated as in PATH."""
    cache_dir: GivenPath | None = None
    """Directory of profiles, scale maps and fetched data; by default `~/.cache/modnorm`."""

    @property
    def cache(self) -> Path:
        return self.cache_dir or default_cache()


class TracingSettings(BaseSettings):
    """Settings of traces, from OpenTelemetry's own variables."""

    model_config = SettingsConfigDict(frozen=True, env_ignore_empty=True)

    otel_exporter_otlp_endpoint: str = ""
    """URL of a collector for OTLP over HTTP, for example `http://collector:4318`."""
    otel_exporter_otlp_traces_endpoint: str = ""
    """URL of a collector for traces only."""
    otel_sdk_disabled: bool = False

    @property
    def wanted(self) -> bool:
        """Whether traces are exported."""
        endpoint = self.otel_exporter_otlp_endpoint or self.otel_exporter_otlp_traces_endpoint
        return bool(endpoint) and not self.otel_sdk_disabled


class SandboxSettings(ServiceSettings):
    bind_address: Address = "127.0.0.1:50055"
    concurrency: int = Field(default_factory=lambda: len(os.sched_getaffinity(0)), ge=1, le=256)
    """Programs that run concurrently; others wait. One per core by default."""


class CalibratorSettings(ServiceSettings):
    bind_address: Address = "127.0.0.1:50052"


class SamplerSettings(ServiceSettings):
    bind_address: Address = "127.0.0.1:50053"


class QueueSettings(ServiceSettings):
    """Settings of a service that uses the broker."""

    broker_url: str = Field(default="redis://127.0.0.1:6379/0", repr=False)
    """`redis://HOST/0` or `amqp://USER@HOST//`, without a password if a file contains it."""
    broker_password_file: GivenPath | None = None
    """File with the broker's password, which is added to the URL."""

    @model_validator(mode="before")
    @classmethod
    def _add_passwords(cls, values: dict[str, object]) -> dict[str, object]:
        """Add the password of each `NAME_password_file` that is set to `NAME_url`."""
        for field in cls.model_fields:
            if field.endswith("_password_file") and (file := values.get(field)):
                name = f"{field.removesuffix('_password_file')}_url"
                url = values.get(name, cls.model_fields[name].default)
                values = values | {name: add_password(str(url), Path(str(file)), field=field)}
        return values


class EvaluatorSettings(QueueSettings):
    """Settings of an evaluator, which listens for health checks only."""

    bind_address: Address = "127.0.0.1:50054"
    aggregator_target: Target = "127.0.0.1:50051"
    heartbeat_seconds: float = Field(default=5.0, gt=0)
    """Seconds between two heartbeats; well below the aggregator's `lease_seconds`."""
    worker_name: str = ""
    """Name in leases; empty for host and process id."""
    torch_threads: int = Field(default=0, ge=0)
    """Threads of CPU kernels; 0 for torch's own number. Rounding may depend on it."""

    sandbox_target: Target = ""
    """HOST:PORT of a sandbox service; empty if no task runs programs."""
    gpu_memory_utilization: float = Field(default=0.9, gt=0, le=1)
    """Share of a GPU's memory for all vLLM engines on it."""
    stall_seconds: float = Field(default=600.0, gt=0)
    """Seconds without a decode step, a step of a lineage or a judged answer after which an engine
    or a judge hangs: its process ends, and the supervisor restarts it. A load may take three times
    as long."""
    load_lock: GivenPath | None = None
    """File that is locked while a model loads: vLLM does not guard its folder of kernels."""
    first_job: GivenPath | None = None
    """File with a job that will come; its model is loaded at the start."""
    may_make_room: bool = False
    """Whether to end if a model does not fit its share, so that fewer workers use the GPU."""
    supervised: bool = False
    """Whether standard input belongs to a supervisor: the evaluator ends with it."""


class SupervisorSettings(EvaluatorSettings):
    """Settings of a host's supervisor; its workers read the same environment."""

    devices: str = ""
    """GPUs with a worker each: `all` or a list such as `0,1`; empty for one worker on the CPU."""
    visible_devices: str | None = Field(default=None, validation_alias="CUDA_VISIBLE_DEVICES")
    """The GPUs of `all`, if the variable is set."""
    engines_per_gpu: Literal["auto", "1", "2", "3", "4"] = "auto"
    """Workers that share a GPU and its memory. `auto` is one without NVIDIA's MPS. With it `auto`
    is as many as fit the memory, up to a measured number (docs/gpu-sharing.md)."""
    mps: Literal["auto", "on", "off"] = "auto"
    """Whether workers share GPUs by NVIDIA's MPS, which is started unless it runs: `auto` if it
    can be."""
    gpus_per_worker: int = Field(default=1, ge=1)
    """Neighbouring GPUs of one worker, for models spread over several."""
    engine_ports: int = Field(default=23_000, ge=1024, le=60_000)
    """First port of the engines on loopback; each worker has a hundred."""
    silence_seconds: float = Field(default=120.0, gt=0)
    """Seconds without an answer to a health check after which a worker is killed and restarted."""


class AggregatorSettings(QueueSettings):
    database_url: str = Field(default="sqlite:///modnorm.db", repr=False)
    """`sqlite:///FILE` or `postgresql://USER@HOST/DATABASE`, with `USER:PASSWORD` if no file
    contains the password."""
    database_password_file: GivenPath | None = None
    """File with the database's password, which is added to the URL."""

    run_dir: GivenPath | None = None
    """Directory of finished runs that clients fetch; by default `lab-runs` of `cache_dir`. Labs
    may not share one: `remove_old` removes the runs that its database lacks."""
    split_folders: Roots = ()
    """Directories of named splits, besides `data` of the cache directory and the data roots."""
    calibrator_target: Target = "127.0.0.1:50052"
    sampler_target: Target = "127.0.0.1:50053"
    sandbox_target: Target = ""
    """HOST:PORT of a sandbox service; empty if no task runs programs."""
    lease_seconds: float = Field(default=60.0, gt=0)
    """Seconds without a heartbeat after which a lease expires."""
    conduct_seconds: float = Field(default=1.0, gt=0)
    """Seconds between two searches for experiments in setup."""
    reap_seconds: float = Field(default=5.0, gt=0)
    """Seconds between two searches for expired leases."""
    retry_seconds: float = Field(default=30.0, gt=0)
    """Longest pause before a retry of a step whose service is down."""
    outage_seconds: float = Field(default=math.inf, gt=0, allow_inf_nan=True)
    """Seconds of outages after which an experiment in setup fails: only for labs in which
    no operator repairs services."""
    page_address: WebAddress = ""
    """HOST:PORT of the web page; empty switches it off, port 0 takes a free one."""
    page_hosts: Names = ()
    """Host names, separated by commas, that browsers may use besides loopback where the page
    requires no token. With tokens any name is answered."""
    release_leases_on_start: bool = False
    """Release all leases at the start: only for labs whose workers end with the aggregator."""

    @property
    def runs(self) -> Path:
        """Directory of finished runs that clients fetch."""
        return self.run_dir or self.cache / "lab-runs"


def add_password(url: str, file: Path, *, field: str) -> str:
    """Return a URL with the password of a file."""
    parts = urlsplit(url)
    if parts.password is not None:
        raise InvalidInputError(
            "the URL and a file both contain a password", field=field, remedy="remove one of them"
        )
    user, _, host = parts.netloc.rpartition("@")
    netloc = f"{user}:{quote(_read_password(file, field), safe='')}@{host}"
    return parts._replace(netloc=netloc).geturl()


def _read_password(file: Path, field: str) -> str:
    try:
        password = file.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidInputError(
            f"{file} cannot be read: {read_fault(error)}",
            field=field,
            remedy="name a file that this user can read",
        ) from error
    if not password:
        raise InvalidInputError(f"{file} is empty", field=field, remedy="write the password to it")
    return password


def inherited_environment() -> dict[str, str]:
    """Return the environment of this process, for child processes."""
    return dict(os.environ)  # noqa: TID251 - the only place
