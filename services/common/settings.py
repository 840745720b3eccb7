"""Settings of the services, from environment variables that start with MODNORM_."""

import math
import os
from pathlib import Path
from typing import Annotated, Literal

from pydantic import BeforeValidator, Field, model_validator
from pydantic_settings import BaseSettings, NoDecode, SettingsConfigDict

from modnorm.wire.connection import ConnectionSettings, GivenPath, split_paths
from services.common.passwords import add_password

Roots = Annotated[tuple[Path, ...] | None, NoDecode, BeforeValidator(split_paths)]
"""Directories that files may be read from; None allows all, which only embedded runs do."""


class ServiceSettings(ConnectionSettings):
    """Settings of every service.

    With a certificate a service speaks TLS only. The same certificate, `tls_ca` and the token are
    what it shows to the services that it calls.
    """

    bind_address: str = "127.0.0.1:50051"
    """HOST:PORT to listen on; port 0 takes a free one."""
    log_level: Literal["DEBUG", "INFO", "WARNING", "ERROR"] = "INFO"
    metrics_address: str = ""
    """HOST:PORT that Prometheus reads metrics from; none are shown when empty."""
    accepted_tokens: GivenPath | None = None
    """File of the tokens that callers need, from `modnorm token create`; none are without it."""
    allow_anonymous: bool = False
    """Do without tokens on other addresses than loopback, too."""
    tls_client_certificates: bool = False
    """Refuse callers that have no certificate of `tls_ca` (mutual TLS)."""
    rate_limit: float = Field(default=100.0, ge=0)
    """Calls a second under one token of a person; no limit when 0."""
    worker_rate_limit: float = Field(default=10_000.0, ge=0)
    """The same under one token of workers or services."""
    stream_limit: int = Field(default=10_000, ge=0)
    """Streams that one token may hold open: each worker has one, each watcher another. No limit
    when 0."""
    stop_grace: float = Field(default=10.0, ge=0)
    """Seconds that calls in progress get when the service stops."""
    model_roots: Roots = ()
    """Where local model directories may lie, separated as in PATH."""
    data_roots: Roots = ()
    """Where local data and profile files may lie, separated as in PATH."""
    cache_dir: GivenPath = Path.home() / ".cache" / "modnorm"


class TracingSettings(BaseSettings):
    """Whether to trace, from the variables that OpenTelemetry itself reads."""

    model_config = SettingsConfigDict(frozen=True, env_ignore_empty=True)

    otel_exporter_otlp_endpoint: str = ""
    """URL of a collector that speaks OTLP over HTTP, `http://collector:4318`."""
    otel_exporter_otlp_traces_endpoint: str = ""
    """The same for traces alone."""
    otel_sdk_disabled: bool = False

    @property
    def wanted(self) -> bool:
        """Whether traces have somewhere to go."""
        endpoint = self.otel_exporter_otlp_endpoint or self.otel_exporter_otlp_traces_endpoint
        return bool(endpoint) and not self.otel_sdk_disabled


class SandboxSettings(ServiceSettings):
    """Settings of the sandbox."""

    bind_address: str = "127.0.0.1:50055"
    concurrency: int = Field(default_factory=lambda: len(os.sched_getaffinity(0)), ge=1, le=256)
    """Programs that run at a time; others wait. One a core by default."""


class CalibratorSettings(ServiceSettings):
    """Settings of the calibrator."""

    bind_address: str = "127.0.0.1:50052"


class SamplerSettings(ServiceSettings):
    """Settings of the sampler."""

    bind_address: str = "127.0.0.1:50053"


class QueueSettings(ServiceSettings):
    """Settings of a service that talks to the broker."""

    broker_url: str = Field(default="redis://127.0.0.1:6379/0", repr=False)
    """`redis://HOST/0` or `amqp://USER@HOST//`, without a password where a file holds it."""
    broker_password_file: GivenPath | None = None
    """File with the broker's password, put into the URL."""

    @model_validator(mode="before")
    @classmethod
    def _read_broker_password(cls, values: dict[str, object]) -> dict[str, object]:
        return _with_password(cls, values, "broker")


class EvaluatorSettings(QueueSettings):
    """Settings of an evaluator, which listens for health checks only."""

    bind_address: str = "127.0.0.1:50054"
    aggregator_target: str = "127.0.0.1:50051"
    heartbeat_seconds: float = Field(default=5.0, gt=0)
    """Seconds between two heartbeats; well below the aggregator's `lease_seconds`."""
    worker_name: str = ""
    """Name that leases are held under; host and process when empty."""
    torch_threads: int = Field(default=0, ge=0)
    """Threads of CPU kernels; torch's own choice when 0. Rounding may depend on it."""
    sandbox_target: str = ""
    """HOST:PORT of a sandbox service; empty where no task runs programs."""
    gpu_memory_utilization: float = Field(default=0.9, gt=0, le=1)
    """Share of a GPU's memory that vLLM engines on it take together."""
    model_patience: float = Field(default=300.0, ge=0)
    """Seconds for which a worker passes on jobs of other models while some of its own wait."""
    parked_candidates: int = Field(default=12, ge=0, le=64)
    """Candidates that wait in the engine, partly answered, while others begin: the best go on
    first, and the others may be stopped. 0 takes one after the other."""
    stall_seconds: float = Field(default=600.0, gt=0)
    """An engine that ends no decode step, and no step of a lineage, for this long hangs: its
    process ends, and its supervisor starts another. Loading may take three times as long."""
    load_lock: GivenPath | None = None
    """File that workers of one GPU lock in turn while they load: engines measure free memory."""
    may_make_room: bool = False
    """Whether to end, for fewer workers on this GPU, when a model does not fit its share."""
    supervised: bool = False
    """Whether standard input is a supervisor's: when it ends, so does the evaluator."""


class SupervisorSettings(EvaluatorSettings):
    """Settings of a host's supervisor of evaluators; its workers read the same environment."""

    devices: str = ""
    """GPUs that get a worker each: `all`, or a list such as `0,1`; one worker when empty."""
    visible_devices: str | None = Field(default=None, validation_alias="CUDA_VISIBLE_DEVICES")
    """What `all` means, where it is set."""
    engines_per_gpu: Literal["auto", "1", "2", "3", "4"] = "auto"
    """Workers that share a GPU and its memory. `auto` is one without NVIDIA's MPS; with it as many
    as models leave room for, up to a measured number (docs/gpu-sharing.md)."""
    mps: Literal["auto", "on", "off"] = "auto"
    """Whether workers share GPUs by NVIDIA's MPS: `auto` where it runs, `on` starts a daemon."""
    gpus_per_worker: int = Field(default=1, ge=1)
    """Neighbouring GPUs of one worker, for models that are spread over several."""
    engine_ports: int = Field(default=23_000, ge=1024, le=60_000)
    """First of the ports of engines on loopback; each worker has a hundred."""
    silence_seconds: float = Field(default=120.0, gt=0)
    """A worker that answers no health check for this long is killed and started again."""


class DatabaseSettings(ServiceSettings):
    """Settings of what opens the database."""

    database_url: str = Field(default="sqlite:///modnorm.db", repr=False)
    """`sqlite:///FILE` or `postgresql://USER@HOST/DATABASE`, with `USER:PASSWORD` where no file
    holds the password."""
    database_password_file: GivenPath | None = None
    """File with the database's password, put into the URL."""

    @model_validator(mode="before")
    @classmethod
    def _read_database_password(cls, values: dict[str, object]) -> dict[str, object]:
        return _with_password(cls, values, "database")


class AggregatorSettings(DatabaseSettings, QueueSettings):
    """Settings of the aggregator."""

    split_folders: Roots = ()
    """Where named splits are looked for, besides `data` of the cache directory and data roots."""
    migrate_on_start: bool = True
    """Whether to bring the schema up to date at the start; otherwise it must be so already."""
    calibrator_target: str = "127.0.0.1:50052"
    sampler_target: str = "127.0.0.1:50053"
    sandbox_target: str = ""
    """HOST:PORT of a sandbox service; empty where no task runs programs."""
    lease_seconds: float = Field(default=60.0, gt=0)
    """A worker that is silent for this long has lost its job."""
    conduct_seconds: float = Field(default=1.0, gt=0)
    """Seconds between two looks for experiments to move on."""
    reap_seconds: float = Field(default=5.0, gt=0)
    """Seconds between two looks for leases that ended."""
    reconcile_seconds: float = Field(default=60.0, gt=0)
    """Seconds between two publications of what is still pending."""
    watch_seconds: float = Field(default=1.0, gt=0)
    """Seconds after which a watcher looks for events that another aggregator stored."""
    retry_seconds: float = Field(default=30.0, gt=0)
    """Longest pause before a step is tried again whose service is down."""
    outage_seconds: float = Field(default=math.inf, gt=0, allow_inf_nan=True)
    """An experiment fails whose step meets nothing but outages for this long: right only where
    nobody mends a service while it is waited for."""
    release_leases_on_start: bool = False
    """Take back all leases at the start: right only where workers end with the aggregator."""


def _with_password(
    settings: type[ServiceSettings], values: dict[str, object], name: str
) -> dict[str, object]:
    """Put the password of `NAME_password_file`, where there is one, into `NAME_url`."""
    file = values.get(f"{name}_password_file")
    if not file:
        return values
    url = values.get(f"{name}_url", settings.model_fields[f"{name}_url"].default)
    added = add_password(str(url), Path(str(file)), field=f"{name}_password_file")
    return values | {f"{name}_url": added}


def inherited_environment() -> dict[str, str]:
    """Return the environment of this process, for those that it starts."""
    return dict(os.environ)  # noqa: TID251 - this is the one place
