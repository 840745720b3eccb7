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
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from google.protobuf import json_format, message_factory
from google.protobuf.descriptor_pool import DescriptorPool
from grpc_reflection.v1alpha.proto_reflection_descriptor_database import (
    ProtoReflectionDescriptorDatabase,
)
from openai import OpenAI

from modnorm.analysis.run import load_run
from modnorm.client.run_directory import RunDirectory
from modnorm.spec import ExperimentSpec
from modnorm.v1 import experiment_pb2 as experiments
from modnorm.wire.channel import open_channel
from modnorm.wire.connection import Credentials
from modnorm.wire.conversions import spec_to_proto
from scripts.compose_lab import (
    ENDED,
    UNDISTURBED,
    ComposeLab,
    compose_lab,
    free_address,
    inspect,
    joined_host,
    read_results,
    require,
    require_equal,
    run,
    say,
    timed,
)

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
        "population": {
            "size": 48,
            "prefixes": [24, 48],
            "ensemble_sizes": [1, 5],
            "seed": 42,
            "statistics": "full",
        },
        "calibration": {"examples": 32},
    }
)
ARTIFACTS = ("run", "--rm", "--no-deps", "-T", "--entrypoint", "tar", "calibrator")
CACHE = "/var/cache/modnorm"
ASKED = 6
"""Held-out rows that a server is asked."""
Backup = tuple[bytes, bytes]
"""The database and the artifacts."""


def main() -> None:
    """Run the drill, or parts of it."""
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
        _build(lab)
        expected = _run_undisturbed(lab)
        for part in arguments.parts or PARTS:
            lab.compose("down", "--volumes")
            PARTS[part](lab, expected)
    say("everything held")


def _run_undisturbed(lab: ComposeLab) -> Mapping[str, bytes]:
    if kept := read_results(lab.runs / UNDISTURBED):
        return kept
    lab.start("up --wait, from nothing to healthy")
    _check_fences(lab)
    experiment_id = lab.finish(lab.submit(SPEC, UNDISTURBED), UNDISTURBED)
    return lab.results(experiment_id, UNDISTURBED)


def _build(lab: ComposeLab) -> None:
    with timed("build"):
        lab.compose("build", "--quiet")
    for image in IMAGES:
        name = f"modnorm/{image}:0.1.0"
        size = run(["docker", "image", "inspect", "--format", "{{.Size}}", name])
        say(f"image {image}: {int(size) / 1e6:.0f} MB")


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
    experiment_id = _create_by_reflection(lab)
    lab.wait_for(experiment_id, experiments.EXPERIMENT_STATE_CALIBRATING)
    for service in SERVICES:
        if service == "evaluator":
            _wait_for_workers(lab, experiment_id, 1)
        _kill(lab, service, experiment_id)
    _kill_worker(lab)
    require(lab.state(experiment_id) not in ENDED, "the run was over before its worker was killed")
    lab.finish(experiment_id, "kill -9")
    require_equal(expected, lab.results(experiment_id, "kill -9"), "kill -9")


def _kill(lab: ComposeLab, service: str, experiment_id: str) -> None:
    """Kill a container's process and wait until it is healthy again."""
    name = experiments.ExperimentState.Name(current := lab.state(experiment_id))
    require(current not in ENDED, f"{name} before {service} was killed")
    lab.kill(service, f"while {name.rpartition('_')[2]}")


def _kill_worker(lab: ComposeLab) -> None:
    """Kill a worker under its supervisor; the container must continue."""
    (container,) = lab.containers("evaluator")
    before = inspect(container, "{{.RestartCount}}")
    processes = run(["docker", "top", container, "-eo", "pid,args"]).decode().splitlines()
    (worker,) = (line.split()[0] for line in processes if "evaluator.server" in line)
    os.kill(int(worker), signal.SIGKILL)
    time.sleep(5)
    require(inspect(container, "{{.RestartCount}}") == before, "the container restarted")
    say("kill -9 of a worker: its container continues")


def _survive_scale_down_up_and_loss(lab: ComposeLab, expected: Mapping[str, bytes]) -> None:
    """During a run scale out, stop and start the lab, delete its volumes and restore a backup."""
    lab.start("up --wait --scale evaluator=3, new volumes", "--scale", "evaluator=3")
    experiment_id = lab.submit(SPEC, "interrupted")
    _wait_for_workers(lab, experiment_id, 3)
    backup = _back_up(lab)
    with timed("down, in the middle of a run"):
        lab.compose("down")
    lab.start("up --wait, on what was there")
    require(lab.state(experiment_id) not in ENDED, "the run was over before `down`")
    lab.finish(experiment_id, "down and up")
    require_equal(expected, lab.results(experiment_id, "down and up"), "down and up")
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
        require(lab.state(experiment_id) not in ENDED, f"only {found} scored candidates")
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
    experiment_id = lab.submit(SPEC, "hosts")
    with joined_host(lab) as host:
        _wait_for_workers(lab, experiment_id, 2)
        (container,) = host.containers("evaluator")
        run(["docker", "kill", container])
        require(lab.state(experiment_id) not in ENDED, "the run was over before the host was lost")
    lab.finish(experiment_id, "a host that came and was lost")
    require_equal(expected, lab.results(experiment_id, "hosts"), "hosts")


def _survive_with_rabbitmq(lab: ComposeLab, expected: Mapping[str, bytes]) -> None:
    """Use RabbitMQ as the broker, and kill it during a run."""
    url = "amqp://modnorm@rabbitmq:5672//"
    lab = lab.under({"COMPOSE_PROFILES": "rabbitmq", "MODNORM_BROKER_URL": url})
    lab.start("up --wait with RabbitMQ, new volumes")
    experiment_id = lab.submit(SPEC, "rabbitmq")
    _wait_for_workers(lab, experiment_id, 1)
    _kill(lab, "rabbitmq", experiment_id)
    lab.finish(experiment_id, "rabbitmq")
    require_equal(expected, lab.results(experiment_id, "rabbitmq"), "rabbitmq")
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
    require(lab.state(experiment_id) not in ENDED, "the backup was not of a run in progress")
    lab.finish(experiment_id, "restored")
    require_equal(expected, lab.results(experiment_id, "restored"), "restored")


def _create_by_reflection(lab: ComposeLab) -> str:
    """Create an experiment with reflection only."""
    with open_channel(lab.target, Credentials(token_file=lab.token_file), ()) as channel:
        pool = DescriptorPool(ProtoReflectionDescriptorDatabase(channel))
        service = pool.FindServiceByName("modnorm.v1.ExperimentService")
        method = service.methods_by_name["CreateExperiment"]
        request = message_factory.GetMessageClass(method.input_type)()
        spec = json_format.MessageToDict(spec_to_proto(SPEC))
        json_format.ParseDict({"requestId": "kills", "spec": spec}, request)
        answer = message_factory.GetMessageClass(method.output_type)
        call = channel.unary_unary(
            f"/{service.full_name}/{method.name}",
            request_serializer=type(request).SerializeToString,
            response_deserializer=answer.FromString,
        )
        response = json_format.MessageToDict(call(request, timeout=120))
    say("created over reflection alone")
    return str(response["experiment"]["id"])


def _survive_a_killed_server(lab: ComposeLab, expected: Mapping[str, bytes]) -> None:
    """Serve the undisturbed run and kill the server: it votes as the run did, before and after."""
    rows = [json.loads(line) for line in expected["rows/heldout.jsonl"].splitlines()][:ASKED]
    run = _run_directory(lab)
    votes = [vote.answer for vote in load_run(run).ensembles[-1].votes][:ASKED]
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


def _run_directory(lab: ComposeLab) -> Path:
    """Return the undisturbed run as a run directory, which names its spec."""
    folder = lab.folder / "served"
    shutil.copytree(lab.runs / UNDISTURBED, folder)
    results = json.loads((folder / "results.json").read_text(encoding="utf-8"))
    RunDirectory(folder).claim(ExperimentSpec.model_validate(results["spec"]))
    return folder


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
