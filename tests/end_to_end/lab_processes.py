"""A lab of separate processes."""

import json
import signal
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from modnorm.services.common.healthcheck import check
from verification.labs.fork_server import Launch
from verification.labs.forked import ForkServer, Process
from verification.labs.servers import free_port
from verification.labs.waiting import wait_until


def free_address():
    return f"127.0.0.1:{free_port()}"


def serves(address):
    return check(address) == "SERVING"


@dataclass
class Lab:
    """Starts services on free ports; `server` is the aggregator's address."""

    forks: ForkServer
    environment: dict[str, str]
    folder: Path
    server: str = field(default_factory=free_address)
    _services: ExitStack = field(default_factory=ExitStack)
    _aggregators: list[Process] = field(default_factory=list)

    @contextmanager
    def services(self):
        """Run calibrator, sampler and aggregator."""
        calibrator, sampler = free_address(), free_address()
        self.environment |= {
            "MODNORM_AGGREGATOR_TARGET": self.server,
            "MODNORM_CALIBRATOR_TARGET": calibrator,
            "MODNORM_SAMPLER_TARGET": sampler,
        }
        addresses = {"calibrator": calibrator, "sampler": sampler, "aggregator": self.server}
        with self._services:
            for name, address in addresses.items():
                process = self._services.enter_context(self.process(name, address))
            self._aggregators.append(process)
            for name, address in addresses.items():
                wait_until(partial(serves, address), f"{name} serves")
            yield

    def kill_aggregator(self):
        """Kill the aggregator and start another at its address."""
        self._aggregators[-1].kill()
        self._aggregators[-1].wait()
        again = self.process("aggregator", self.server, f"-{len(self._aggregators)}")
        self._aggregators.append(self._services.enter_context(again))
        wait_until(partial(serves, self.server), "the aggregator serves again")

    @contextmanager
    def process(self, service, address, name="", **settings):
        """Run one service until the context ends; what it logs goes to a file."""
        environment = self.environment | {
            "MODNORM_BIND_ADDRESS": address,
            "MODNORM_WORKER_NAME": name,
            **settings,
        }
        log, ended = (self.folder / f"{service}{name}.{kind}" for kind in ("log", "ended"))
        ended.unlink(missing_ok=True)
        process = self.forks.launch(
            Launch(f"modnorm.services.{service}.server", environment, str(log), ended=str(ended))
        )
        try:
            yield process
        finally:
            process.send_signal(signal.SIGTERM)
            assert process.wait() in {0, -signal.SIGKILL}

    @contextmanager
    def evaluator(self, name, **settings):
        """Run an evaluator; it listens when the context begins."""
        before = self.events(name).count("listening")
        with self.process("evaluator", "127.0.0.1:0", name, **settings) as process:
            wait_until(lambda: self.events(name).count("listening") > before, f"{name} is up")
            yield process

    def events(self, name):
        """Return what an evaluator has logged."""
        log = self.folder / f"evaluator{name}.log"
        lines = log.read_text().splitlines() if log.exists() else []
        return [json.loads(line)["event"] for line in lines if line.startswith("{")]
