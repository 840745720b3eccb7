"""Inject the failures into a compose lab that docs/deployment.md promises to survive.

    python -m scripts.deployment_drill [PART...] [--wheels DIR] [--runs DIR]

Needs root on the Docker host for kill -9. Builds, starts and removes a project of
its own, with its own volumes, secrets and port, and prints results and times. Any
violation ends it with exit code 1. It takes about 15 minutes on two cores.
"""

import argparse
import json
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from openai import OpenAI
from tenacity import retry, retry_if_exception_type, stop_after_delay, wait_fixed

from modnorm.analysis.run import load_run
from modnorm.client.client import Client
from modnorm.client.experiments import ExperimentState
from modnorm.client.fetching import save_run
from modnorm.errors import UnavailableError
from modnorm.spec import ExperimentSpec
from modnorm.wire.connection import Credentials

ROOT = Path(__file__).parents[1]
HEALTHY_SECONDS = 180.0
UNDISTURBED = "undisturbed"
"""Folder of the run that others are compared with."""
DIFFERS = "timings.json"
"""The one file of a run that contains times and names of workers."""
SERVICES = ("calibrator", "sampler", "evaluator", "aggregator", "redis", "postgres", "sandbox")
"""In the order of the kills, each as soon as the service has work."""
IMAGES = ("aggregator", "calibrator", "sampler", "evaluator", "sandbox")
SETTINGS = {
    "MODNORM_EVALUATOR_CPUS": "0.8",
    "MODNORM_LEASE_SECONDS": "10",
    "MODNORM_HEARTBEAT_SECONDS": "2",
    "MODNORM_REAP_SECONDS": "2",
}
SPEC = ExperimentSpec.model_validate(
    {
        "name": "drill",
        "model": {"name": "tiny-thicket"},
        "task": {
            "name": "countdown",
            "selection": {"source": "bundled:countdown-selection", "limit": 20},
            "heldout": {"source": "bundled:countdown-heldout", "limit": 20},
            "max_tokens": 64,
        },
        "method": {"name": "modular_norm", "radius": 0.64},
        "population": {"size": 48, "prefixes": [24, 48], "ensemble_sizes": [1, 5], "seed": 42},
        "calibration": {"examples": 32},
    }
)
ARTIFACTS = ("run", "--rm", "--no-deps", "-T", "--entrypoint", "tar", "calibrator")
CACHE = "/var/cache/modnorm"
ASKED = 6
"""Held-out rows that a server is asked."""
Backup = tuple[bytes, bytes]
"""The database and the artifacts."""


@dataclass(frozen=True)
class ComposeLab:
    """A compose project with a published aggregator."""

    folder: Path
    """Of settings and secrets."""
    runs: Path
    """Folder of run files."""
    settings: Mapping[str, str]
    """Variables of its `.env`."""
    project: str

    def compose(self, *arguments: str, stdin: bytes | None = None) -> bytes:
        """Run docker compose; return its standard output."""
        file = self.folder / f"{self.project}.env"
        lines = (f"{name}={value}\n" for name, value in self.settings.items())
        file.write_text("".join(lines), encoding="utf-8")
        command = ("docker", "compose", "--project-name", self.project, "--env-file", str(file))
        return run([*command, *arguments], stdin=stdin)

    def under(self, settings: Mapping[str, str], project: str = "") -> "ComposeLab":
        """Return this project or another one with changed settings."""
        changed = dict(self.settings) | dict(settings)
        return replace(self, settings=changed, project=project or self.project)

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
        try:
            self.compose(*arguments)
        except subprocess.CalledProcessError:
            return True
        return False

    def client(self) -> Client:
        """Return a client with the token of a user, which waits for an aggregator that is down."""
        token = Credentials(token_file=self.folder / "secrets/user_token")
        target = self.settings["MODNORM_PUBLISH"]
        return Client(target, credentials=token, patience=HEALTHY_SECONDS)

    def containers(self, service: str) -> Sequence[str]:
        return self.compose("ps", "--quiet", service).decode().split()

    @retry(
        retry=retry_if_exception_type(UnavailableError),
        stop=stop_after_delay(HEALTHY_SECONDS),
        wait=wait_fixed(0.5),
        reraise=True,
    )
    def state(self, experiment_id: str) -> ExperimentState:
        """Return an experiment's state; wait for an aggregator that is down."""
        with self.client() as client:
            return client.get(experiment_id).state

    def submit(self, name: str) -> str:
        """Submit the experiment of the drill under a name and return its id."""
        with self.client() as client:
            return client.submit(SPEC, request_id=name).id

    def finish(self, experiment_id: str, what: str) -> None:
        """Wait until an experiment has succeeded."""
        with timed(f"{what}: to the end of the experiment"), self.client() as client:
            for _ in client.watch(experiment_id):
                pass
        state = self.state(experiment_id)
        require(state is ExperimentState.SUCCEEDED, f"it ended as {state}")

    def require_running(self, experiment_id: str, before: str) -> None:
        """End the drill if an experiment has ended too early."""
        require(not self.state(experiment_id).is_final, f"the run was over before {before}")

    def check_end(self, experiment_id: str, name: str, expected: Mapping[str, bytes]) -> None:
        """Wait until an experiment has succeeded; end the drill if its files are others."""
        self.finish(experiment_id, name)
        require_equal(expected, self.results(experiment_id, name), name)

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
    """Write the settings of a project, which its folder names; remove the project at the end.

    `wheels` has a wheel of torch, used instead of PyTorch's index.
    """
    run([str(ROOT / "scripts/make-secrets"), str(folder / "secrets")])
    lines = {
        "MODNORM_PUBLISH": free_address(),
        "MODNORM_PAGE_PUBLISH": free_address(),
        "MODNORM_QUEUE_PUBLISH": free_address(),
        "MODNORM_SECRETS": str(folder / "secrets"),
        **settings,
    }
    if wheels:
        lines |= {"MODNORM_WHEELS": str(wheels.resolve()), "MODNORM_TORCH_INDEX": ""}
    lab = ComposeLab(folder, runs, lines, project=folder.name)
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
            "MODNORM_AGGREGATOR_TARGET": lab.settings["MODNORM_PUBLISH"],
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
    print(text, flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument(
        "parts", nargs="*", metavar="PART", help=f"parts, of {', '.join(PARTS)}; default: all"
    )
    parser.add_argument("--wheels", type=Path, help="folder with a wheel of torch")
    parser.add_argument(
        "--runs", type=Path, help="folder to keep the runs; the undisturbed run is reused"
    )
    arguments = parser.parse_args()
    with (
        tempfile.TemporaryDirectory(prefix="modnorm-drill-") as name,
        compose_lab(Path(name), arguments.runs or Path(name), arguments.wheels, SETTINGS) as lab,
        timed("the drill"),
    ):
        with timed("build"):
            lab.compose("build", "--quiet")
        for image in IMAGES:
            inspecting = ["docker", "image", "inspect", "--format", "{{.Size}}"]
            size = run([*inspecting, f"modnorm/{image}:0.1.0"])
            say(f"image {image}: {int(size) / 1e6:.0f} MB")
        expected = read_results(lab.runs / UNDISTURBED)
        if not expected:
            lab.start("up --wait, from nothing to healthy")
            _check_fences(lab)
            experiment_id = lab.submit(UNDISTURBED)
            lab.finish(experiment_id, UNDISTURBED)
            expected = lab.results(experiment_id, UNDISTURBED)
        for part in arguments.parts or PARTS:
            lab.compose("down", "--volumes")
            PARTS[part](lab, expected)
    say("everything held")


def _check_fences(lab: ComposeLab) -> None:
    """Check that only the aggregator is published and that containers lack needless rights."""
    for service in SERVICES:
        (container,) = lab.containers(service)
        published = inspect(container, "{{len .HostConfig.PortBindings}}") != "0"
        require(published == (service == "aggregator"), f"{service} is published: {published}")
        own = lab.compose("exec", "-T", service, "sh", "-c", "id -u; touch /etc/x 2>&1 || true")
        user, refusal = own.decode().splitlines()
        require(user != "0" and "Read-only" in refusal, f"{service}: user {user}, {refusal}")
    reach = "import socket; socket.create_connection(({!r}, {}), 3)"
    for host, port in (("1.1.1.1", 53), ("postgres", 5432), ("redis", 6379)):
        probe = ("exec", "-T", "sandbox", "python", "-c", reach.format(host, port))
        require(lab.fails(*probe), f"the sandbox reaches {host}")
    say("fences: one published port, no root, read-only, no route out of the sandbox")


def _survive_kills(lab: ComposeLab, expected: Mapping[str, bytes]) -> None:
    """Kill each container's process once during an experiment."""
    lab.start("up --wait, new volumes")
    experiment_id = lab.submit("kills")
    while lab.state(experiment_id) is ExperimentState.PENDING:
        time.sleep(0.1)
    for service in SERVICES:
        if service == "evaluator":
            _wait_for_workers(lab, experiment_id, 1)
        _kill(lab, service, experiment_id)
    _kill_worker(lab)
    lab.require_running(experiment_id, "its worker was killed")
    lab.check_end(experiment_id, "kill -9", expected)


def _kill(lab: ComposeLab, service: str, experiment_id: str) -> None:
    """Kill a container's process and wait until it is healthy again."""
    lab.require_running(experiment_id, f"{service} was killed")
    lab.kill(service, f"while {lab.state(experiment_id)}")


def _kill_worker(lab: ComposeLab) -> None:
    """Kill a worker under its supervisor; the container must continue."""
    (container,) = lab.containers("evaluator")
    before = inspect(container, "{{.RestartCount}}")
    processes = run(["docker", "top", container, "-eo", "pid,args"]).decode().splitlines()
    (worker,) = (line.split()[0] for line in processes if line.endswith("services.evaluator"))
    os.kill(int(worker), signal.SIGKILL)
    time.sleep(5)
    require(inspect(container, "{{.RestartCount}}") == before, "the container restarted")
    say("kill -9 of a worker: its container continues")


def _survive_scale_down_up_and_loss(lab: ComposeLab, expected: Mapping[str, bytes]) -> None:
    """During a run scale out, stop and start the lab, delete its volumes and restore a backup."""
    lab.start("up --wait --scale evaluator=3, new volumes", "--scale", "evaluator=3")
    experiment_id = lab.submit("interrupted")
    _wait_for_workers(lab, experiment_id, 3)
    backup = _back_up(lab)
    with timed("down, in the middle of a run"):
        lab.compose("down")
    lab.start("up --wait, on what was there")
    lab.require_running(experiment_id, "`down`")
    lab.check_end(experiment_id, "down and up", expected)
    lab.compose("down", "--volumes")
    _survive_restore(lab, experiment_id, backup, expected)


def _wait_for_workers(lab: ComposeLab, experiment_id: str, count: int) -> None:
    """Wait until a number of workers have scored candidates."""
    query = (
        "SELECT count(DISTINCT worker) FROM jobs WHERE state = 'done' "
        f"AND experiment_id = '{experiment_id}'"
    )
    psql = ("exec", "-T", "postgres", "psql", "-U", "modnorm", "-At", "-c", query, "modnorm")
    while (found := int(lab.compose(*psql))) < count:
        lab.require_running(experiment_id, f"{count} evaluators scored candidates, only {found}")
        time.sleep(0.5)
    say(f"{count} evaluators have scored candidates")


def _back_up(lab: ComposeLab) -> Backup:
    """Back up a running lab with the commands of docs/deployment.md."""
    with timed("backup, in the middle of a run"):
        dump = lab.compose("exec", "-T", "postgres", "pg_dump", "-U", "modnorm", "-Fc", "modnorm")
        tar = ("-C", CACHE, "--exclude=./huggingface", "-cf", "-", ".")
        return dump, lab.compose(*ARTIFACTS, *tar)


def _survive_a_host_that_comes_and_goes(lab: ComposeLab, expected: Mapping[str, bytes]) -> None:
    """Join a host during a run and kill it."""
    lab = lab.under({"COMPOSE_FILE": "compose.yaml:compose.hosts.yaml"})
    lab.start("up --wait with the queue published, new volumes")
    experiment_id = lab.submit("hosts")
    with joined_host(lab) as host:
        _wait_for_workers(lab, experiment_id, 2)
        (container,) = host.containers("evaluator")
        run(["docker", "kill", container])
        lab.require_running(experiment_id, "the host was lost")
    lab.check_end(experiment_id, "hosts", expected)


def _survive_with_rabbitmq(lab: ComposeLab, expected: Mapping[str, bytes]) -> None:
    """Use RabbitMQ as the broker, and kill it during a run."""
    url = "amqp://modnorm@rabbitmq:5672//"
    lab = lab.under({"COMPOSE_PROFILES": "rabbitmq", "MODNORM_BROKER_URL": url})
    lab.start("up --wait with RabbitMQ, new volumes")
    experiment_id = lab.submit("rabbitmq")
    _wait_for_workers(lab, experiment_id, 1)
    _kill(lab, "rabbitmq", experiment_id)
    lab.check_end(experiment_id, "rabbitmq", expected)
    lab.compose("down", "--volumes")


def _survive_restore(
    lab: ComposeLab, experiment_id: str, backup: Backup, expected: Mapping[str, bytes]
) -> None:
    """Restore a backup from the middle of a run into empty volumes; the run must continue."""
    dump, archive = backup
    with timed("restore into empty volumes, healthy"):
        lab.compose("up", "--detach", "--wait", "postgres")
        restore = ("exec", "-T", "postgres", "pg_restore", "-U", "modnorm", "-d", "modnorm")
        lab.compose(*restore, stdin=dump)
        lab.compose(*ARTIFACTS, "-C", CACHE, "-xf", "-", stdin=archive)
        lab.compose("up", "--detach", "--wait")
    lab.require_running(experiment_id, "its backup")
    lab.check_end(experiment_id, "restored", expected)


def _survive_a_killed_server(lab: ComposeLab, expected: Mapping[str, bytes]) -> None:
    """Serve the undisturbed run and kill the server: it votes as the run did, before and after."""
    rows = [json.loads(line) for line in expected["rows/heldout.jsonl"].splitlines()][:ASKED]
    run = Path(shutil.copytree(lab.runs / UNDISTURBED, lab.folder / "served"))
    found = load_run(run)
    asked = found.votes(None, *found.ensemble().place)
    votes = [vote.answer for vote in asked][:ASKED]
    lab = lab.under(
        {
            "COMPOSE_PROFILES": "serve",
            "MODNORM_SERVE_RUN": str(run),
            "MODNORM_SERVE_PUBLISH": free_address(),
        }
    )
    lab.start("up --wait serve, alone", "serve")
    require(_asked(lab, rows) == votes, "the server votes otherwise than the run")
    lab.kill("serve", "between requests")
    require(_asked(lab, rows) == votes, "the server votes otherwise after it was killed")
    say(f"serve: {len(votes)} votes of the run, before and after kill -9")
    lab.compose("down", "--volumes")


def _asked(lab: ComposeLab, rows: Sequence[Mapping[str, object]]) -> Sequence[str | None]:
    """Return the server's votes on rows, from outside, by the official client."""
    address = f"http://{lab.settings['MODNORM_SERVE_PUBLISH']}/v1"
    key = (lab.folder / "secrets/serve_keys").read_text(encoding="utf-8").strip()
    client = OpenAI(base_url=address, api_key=key, max_retries=5)
    answers = (
        client.chat.completions.create(model="ensemble", messages=[], extra_body={"row": row})
        for row in rows
    )
    return [(answer.model_extra or {})["modnorm"]["answer"] for answer in answers]


PARTS: Mapping[str, Callable[[ComposeLab, Mapping[str, bytes]], None]] = {
    "kills": _survive_kills,
    "scale": _survive_scale_down_up_and_loss,
    "hosts": _survive_a_host_that_comes_and_goes,
    "rabbitmq": _survive_with_rabbitmq,
    "serve": _survive_a_killed_server,
}


if __name__ == "__main__":
    main()
