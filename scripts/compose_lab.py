"""A docker compose lab for the drill, with its own project, volumes and secrets."""

import json
import os
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from modnorm.client.client import Client
from modnorm.client.connection import get_experiment
from modnorm.client.fetching import save_run
from modnorm.errors import UnavailableError
from modnorm.spec import ExperimentSpec
from modnorm.v1 import experiment_pb2 as experiments
from modnorm.wire.connection import Credentials

ROOT = Path(__file__).parents[1]
HEALTHY_SECONDS = 180.0
FINISH_SECONDS = 900.0
UNDISTURBED = "undisturbed"
"""Folder of the run that others are compared with."""
DIFFERS = "timings.json"
"""The one file of a run that contains times and names of workers."""
ENDED = (
    experiments.EXPERIMENT_STATE_SUCCEEDED,
    experiments.EXPERIMENT_STATE_FAILED,
    experiments.EXPERIMENT_STATE_CANCELLED,
)


@dataclass(frozen=True)
class ComposeLab:
    """A compose project with a published aggregator.

    Attributes:
        folder: Folder of settings and secrets.
        runs: Folder of run files.
        target: HOST:PORT of the aggregator.
        settings: Variables of its `.env`.
        project: Its name.
    """

    folder: Path
    runs: Path
    target: str
    settings: Mapping[str, str]
    project: str

    def compose(self, *arguments: str, stdin: bytes | None = None) -> bytes:
        """Run docker compose; return its standard output."""
        command = ("docker", "compose", "--project-name", self.project, "--env-file")
        return run([*command, str(self._env_file), *arguments], stdin=stdin)

    def under(self, settings: Mapping[str, str], project: str = "") -> "ComposeLab":
        """Return this project or another one with changed settings."""
        changed = dict(self.settings) | dict(settings)
        return replace(self, settings=changed, project=project or self.project)

    @property
    def _env_file(self) -> Path:
        file = self.folder / f"{self.project}.env"
        lines = (f"{name}={value}\n" for name, value in self.settings.items())
        file.write_text("".join(lines), encoding="utf-8")
        return file

    def start(self, what: str, *arguments: str) -> None:
        """Start the lab, wait until it is healthy, and print how long that took."""
        with timed(what):
            self.compose("up", "--detach", "--wait", "--quiet-pull", *arguments)

    def kill(self, service: str, when: str) -> None:
        """Kill the process of a service's one container and wait until it is healthy again."""
        (container,) = self.containers(service)
        os.kill(int(inspect(container, "{{.State.Pid}}")), signal.SIGKILL)
        with timed(f"kill -9 {service} {when}, healthy again"):
            wait_until_healthy_again(container)

    def fails(self, *arguments: str) -> bool:
        """Return whether a docker compose command fails."""
        try:
            self.compose(*arguments)
        except subprocess.CalledProcessError:
            return True
        return False

    def client(self) -> Client:
        """Return a client with the token of a user."""
        return Client(self.target, credentials=Credentials(token_file=self.token_file))

    @property
    def token_file(self) -> Path:
        """The user's token."""
        return self.folder / "secrets/user_token"

    def containers(self, service: str) -> Sequence[str]:
        """Return the ids of a service's containers."""
        return self.compose("ps", "--quiet", service).decode().split()

    def state(self, experiment_id: str) -> "experiments.ExperimentState.ValueType":
        """Return an experiment's state; wait for an aggregator that is down."""
        with self.client() as client:
            return _patiently(lambda: get_experiment(client, experiment_id)).state

    def submit(self, spec: ExperimentSpec, request_id: str) -> str:
        """Submit an experiment and return its id."""
        with self.client() as client:
            return client.submit(spec, request_id=request_id).id

    def wait_for(self, experiment_id: str, state: int) -> None:
        """Wait until an experiment has reached a state."""
        deadline = time.monotonic() + FINISH_SECONDS
        while self.state(experiment_id) < state:
            require(time.monotonic() < deadline, f"state {state} does not come")
            time.sleep(0.1)

    def finish(self, experiment_id: str, what: str) -> str:
        """Wait until an experiment has succeeded and return its id."""
        with timed(f"{what}: to the end of the experiment"):
            deadline = time.monotonic() + FINISH_SECONDS
            while (state := self.state(experiment_id)) not in ENDED:
                require(time.monotonic() < deadline, "the experiment does not end")
                time.sleep(0.5)
        name = experiments.ExperimentState.Name(state)
        require(state == experiments.EXPERIMENT_STATE_SUCCEEDED, f"it ended as {name}")
        return experiment_id

    def results(self, experiment_id: str, name: str) -> dict[str, bytes]:
        """Return the files of a run by name, except the file with times."""
        folder = self.runs / name.replace(" ", "-")
        with self.client() as client:
            save_run(client, experiment_id, folder)
        attempts = json.loads((folder / DIFFERS).read_text(encoding="utf-8"))["candidates"]
        workers = {attempt["worker"] for attempt in attempts if attempt["worker"]}
        say(f"{name}: {len(attempts)} candidates of {len(workers)} workers")
        return read_results(folder)


@contextmanager
def compose_lab(
    folder: Path, runs: Path, wheels: Path | None, settings: Mapping[str, str]
) -> Iterator[ComposeLab]:
    """Write the settings of a project; remove the project at the end.

    Args:
        folder: An empty folder for settings and secrets, which names the project.
        runs: Folder of run files.
        wheels: Folder with a wheel of torch, used instead of PyTorch's index.
        settings: Further variables of the project's `.env`.
    """
    target = free_address()
    run([str(ROOT / "scripts/make-secrets"), str(folder / "secrets")])
    lines = {
        "MODNORM_PUBLISH": target,
        "MODNORM_PAGE_PUBLISH": free_address(),
        "MODNORM_QUEUE_PUBLISH": free_address(),
        "MODNORM_SECRETS": str(folder / "secrets"),
        **settings,
    }
    if wheels:
        lines |= {"MODNORM_WHEELS": str(wheels.resolve()), "MODNORM_TORCH_INDEX": ""}
    lab = ComposeLab(folder, runs, target, lines, project=folder.name)
    try:
        yield lab
    finally:
        lab.compose("down", "--volumes", "--remove-orphans", "--timeout", "5")


@contextmanager
def joined_host(lab: ComposeLab) -> Iterator[ComposeLab]:
    """Join another host to a lab: a project without a common network.

    The host has the lab's settings, secrets and published addresses.
    """
    host = lab.under(
        {
            "COMPOSE_FILE": "compose.yaml",
            "MODNORM_AGGREGATOR_TARGET": lab.target,
            "MODNORM_BROKER_URL": f"redis://{lab.settings['MODNORM_QUEUE_PUBLISH']}/0",
        },
        project=f"{lab.project}-host",
    )
    try:
        host.compose("up", "--detach", "--wait", "--no-deps", "evaluator", "sandbox")
        yield host
    finally:
        host.compose("down", "--volumes", "--timeout", "5")


def free_address() -> str:
    """Return a free HOST:PORT of this host that containers in all networks can reach."""
    template = "{{(index .IPAM.Config 0).Gateway}}"
    gateway = run(["docker", "network", "inspect", "--format", template, "bridge"])
    host = gateway.decode().strip()
    with socket.socket() as probe:
        probe.bind((host, 0))
        return f"{host}:{probe.getsockname()[1]}"


def read_results(folder: Path) -> dict[str, bytes]:
    """Return the files of a run by name, except the file with times."""
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and path.name != DIFFERS
    }


def inspect(container: str, template: str) -> str:
    """Return a field of `docker inspect`."""
    return run(["docker", "inspect", "--format", template, container]).decode().strip()


def wait_until_healthy_again(container: str) -> None:
    """Wait until a container whose process was killed is restarted and healthy."""
    deadline = time.monotonic() + HEALTHY_SECONDS
    while time.monotonic() < deadline:
        restarts, health = inspect(container, "{{.RestartCount}} {{.State.Health.Status}}").split()
        if int(restarts) and health == "healthy":
            return
        time.sleep(0.2)
    raise SystemExit(f"{container} is not healthy again")


def run(command: Sequence[str], stdin: bytes | None = None) -> bytes:
    """Run a command; return its standard output, or print its errors if it fails."""
    ended = subprocess.run(command, cwd=ROOT, input=stdin, capture_output=True, check=False)
    if ended.returncode:
        error = subprocess.CalledProcessError(ended.returncode, command)
        error.add_note(ended.stderr.decode(errors="replace")[-4000:])
        raise error
    return ended.stdout


@contextmanager
def timed(what: str) -> Iterator[None]:
    """Print how long something took."""
    began = time.monotonic()
    yield
    say(f"{what}: {time.monotonic() - began:.1f} s")


def require(holds: bool, otherwise: str) -> None:  # noqa: FBT001 - calls state the condition
    """End the drill if a condition does not hold."""
    if not holds:
        raise SystemExit(otherwise)


def require_equal(expected: Mapping[str, bytes], actual: Mapping[str, bytes], what: str) -> None:
    """End the drill if the files of two runs differ."""
    different = [name for name in expected if actual.get(name) != expected[name]]
    require(expected.keys() == actual.keys() and not different, f"{what}: {different} differ")
    say(f"{what}: {len(expected)} files equal byte for byte: {', '.join(expected)}")


def say(text: str) -> None:
    """Print a line without buffering."""
    print(text, flush=True)


def _patiently(call: Callable[[], experiments.Experiment]) -> experiments.Experiment:
    """Repeat a call while the lab is down."""
    deadline = time.monotonic() + HEALTHY_SECONDS
    while True:
        try:
            return call()
        except UnavailableError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.5)
