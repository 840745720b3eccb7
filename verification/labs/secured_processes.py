"""All services of a lab as processes on loopback ports, protected by tokens."""

import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path

from modnorm.wire.channel import Credentials
from modnorm.wire.tokens import Role
from services.common.healthcheck import check
from services.common.settings import inherited_environment
from verification.labs.processes import end
from verification.labs.secured_lab import LEASE_SECONDS, SecuredLab, make_folders
from verification.labs.servers import free_port
from verification.labs.waiting import HANG_SECONDS

STOP_SECONDS = 30.0
SERVICES = ("calibrator", "sampler", "sandbox", "aggregator", "evaluator")


@contextmanager
def secured_processes(folder: Path) -> Iterator[SecuredLab]:
    """Run a lab inside the context; its evaluator has a separate queue.

    Raises:
        TimeoutError: a service does not start.
    """
    lab = SecuredLab(folder, f"sqlite:///{folder / 'lab.db'}")
    make_folders(lab)
    targets = {name: f"127.0.0.1:{free_port()}" for name in SERVICES}
    environment = _environment(lab, targets)
    with ExitStack() as stack:
        for name in SERVICES:
            log = stack.enter_context((lab.logs / f"{name}.log").open("wb"))
            process = subprocess.Popen(
                [sys.executable, "-m", f"services.{name}.server"],
                env={**environment, "MODNORM_BIND_ADDRESS": targets[name]},
                stdout=log,
                stderr=log,
            )
            stack.callback(end, process, STOP_SECONDS)
            lab.processes[name] = process
        for name, target in targets.items():
            _await(lab, name, target)
            lab.targets[name] = target
        yield lab


def _environment(lab: SecuredLab, targets: Mapping[str, str]) -> Mapping[str, str]:
    inside = lab.token("inside", [Role.INTERNAL]).token.get_secret_value()
    inherited = {
        name: value
        for name, value in inherited_environment().items()
        if not name.startswith("MODNORM_")
    }
    return inherited | {
        "HF_HUB_OFFLINE": "1",
        "MODNORM_ACCEPTED_TOKENS": str(lab.accepted),
        "MODNORM_TOKEN": inside,
        "MODNORM_RATE_LIMIT": "0",
        "MODNORM_WORKER_RATE_LIMIT": "0",
        "MODNORM_LEASE_SECONDS": str(LEASE_SECONDS),
        "MODNORM_MODEL_ROOTS": str(lab.folder / "models"),
        "MODNORM_DATA_ROOTS": str(lab.folder / "data"),
        "MODNORM_CACHE_DIR": str(lab.folder / "cache"),
        "MODNORM_DATABASE_URL": lab.database_url,
        "MODNORM_BROKER_URL": "memory://",
        **{f"MODNORM_{name.upper()}_TARGET": target for name, target in targets.items()},
    }


def _await(lab: SecuredLab, name: str, target: str) -> None:
    deadline, process = time.monotonic() + HANG_SECONDS, lab.processes[name]
    while check(target, credentials=Credentials()) != "SERVING":
        if process.poll() is not None or time.monotonic() > deadline:
            said = (lab.logs / f"{name}.log").read_text(errors="replace")
            raise TimeoutError(f"the {name} does not start: {said[-2000:]}")
        time.sleep(0.2)
