"""A served ensemble whose engine or server is killed while clients ask.

The server is `modnorm serve` under a restart policy. In vLLM the victim is the engine's process,
and the server must load another, or end if that is killed too while it loads. The transformers
engine has no process of its own, so the victim is the server.
"""

import http.client
import json
import os
import random
import threading
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from importlib.util import find_spec
from itertools import islice
from pathlib import Path

from modnorm.tasks.row_loading import read_raw_questions
from modnorm.tasks.sources import BUNDLED
from verification.chaos.chaos_lab import inherited
from verification.chaos.fault_schedule import PREDICTED
from verification.chaos.restarted_services import RestartPolicy, Service
from verification.chaos.small_experiments import make_experiment
from verification.labs.fork_server import Launch
from verification.labs.forked import ForkServer, Process, session_of
from verification.labs.servers import free_port
from verification.labs.waiting import HANG_SECONDS, wait_until

CLIENTS = 6
QUESTIONS = 6
MODELS = ("ensemble", "expert-1", "expert-2")
GROWTH = 1.25
"""Largest ratio between the memory after a schedule and after the first one."""
_CALL_SECONDS = HANG_SECONDS
_ERROR_FIELDS = {"message", "type", "param", "code"}


@dataclass
class ServedVerdict:
    """The verdict on one schedule.

    Attributes:
        seed: Its seed.
        kills: Number of kills.
        statuses: Number of responses by status; 0 counts lost connections.
        memory: Bytes of all processes of the server at the end.
        complaints: What must not be.
    """

    seed: int
    kills: int = 0
    statuses: Counter[int] = field(default_factory=Counter)
    memory: int = 0
    complaints: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Served:
    """A running `modnorm serve`.

    Attributes:
        service: The process.
        port: Its port on loopback.
        in_vllm: Whether its engine is vLLM.
    """

    service: Service
    port: int
    in_vllm: bool

    def ask(self, model: str, row: Mapping[str, object]) -> tuple[int, object]:
        """Return status and document of one request; status 0 if the connection was lost."""
        body = json.dumps({"model": model, "messages": [], "row": row})
        status, text = self._call("POST", "/v1/chat/completions", body)
        return status, json.loads(text) if text else None

    def is_ready(self) -> bool:
        """Whether the server answers questions."""
        return self._call("GET", "/readyz", None)[0] == http.client.OK

    def kill(self) -> bool:
        """Kill the engine's process, or the server if it has none; return whether it ran."""
        process = self.service.process
        if process is None or not process.alive:
            return False
        for pid in (self.in_vllm and process.children()) or [process.pid]:
            Process(pid).kill()
        return True

    def memory(self) -> int:
        """Return the resident bytes of all processes of the server."""
        leader = self.service.process
        pids = session_of(leader.pid) if leader is not None else []
        return sum(_resident(pid) for pid in pids)

    def _call(self, method: str, path: str, body: str | None) -> tuple[int, bytes]:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=_CALL_SECONDS)
        try:
            connection.request(method, path, body, {"Content-Type": "application/json"})
            response = connection.getresponse()
            return response.status, response.read()
        except (OSError, http.client.HTTPException):
            return 0, b""
        finally:
            connection.close()


def _resident(pid: int) -> int:
    try:
        pages = Path(f"/proc/{pid}/statm").read_text(encoding="ascii").split()[1]
    except OSError:
        return 0
    return int(pages) * os.sysconf("SC_PAGE_SIZE")


@contextmanager
def open_server(forks: ForkServer, folder: Path) -> Iterator[Served]:
    """Search a small ensemble and serve it until the context ends."""
    folder.mkdir(parents=True, exist_ok=True)
    in_vllm = find_spec("vllm") is not None
    environment = inherited() | {"MODNORM_TORCH_THREADS": "1"}
    with ExitStack() as stack:
        _search(forks, environment, folder)
        port = free_port()
        arguments = ["serve", "run", "--port", str(port), "--max-requests", "64"]
        arguments += ["--engine", "vllm" if in_vllm else "transformers", "--max-length", "512"]
        service = Service("serve", "modnorm", environment, arguments=arguments, folder=str(folder))
        served = Served(service, port, in_vllm)
        policy = RestartPolicy(forks, folder, [service], ())
        stack.callback(policy.stop)
        policy.start()
        wait_until(served.is_ready, "the server is ready", pause=0.5)
        yield served


def _search(forks: ForkServer, environment: Mapping[str, str], folder: Path) -> None:
    """Write the run of an ensemble."""
    spec = make_experiment(PREDICTED).model_dump(mode="json", exclude_unset=True)
    spec["model"] = {"name": "tiny-thicket"}
    (folder / "spec.json").write_text(json.dumps(spec))
    arguments = ["run", "spec.json", "--out", "run"]
    ended = str(folder / "run.ended")
    launch = Launch(
        "modnorm", environment, str(folder / "run.log"), arguments, str(folder), ended=ended
    )
    if forks.launch(launch).wait() != 0:
        raise RuntimeError(f"the search failed: {(folder / 'run.log').read_text()[-2000:]}")


class ServedCampaign:
    """Runs schedules on one server, whose memory must not grow from one to the next."""

    def __init__(self, served: Served) -> None:
        self._served = served
        rows = read_raw_questions(BUNDLED / "word-problems-heldout.jsonl")
        self._rows = [{"question": row["question"]} for _, row in islice(rows, QUESTIONS)]
        self._expected = {
            (model, number): _text(*served.ask(model, row))
            for model in MODELS
            for number, row in enumerate(self._rows)
        }
        self.verdicts: list[ServedVerdict] = []

    @property
    def failed(self) -> list[int]:
        """The seeds of the schedules that failed."""
        return [verdict.seed for verdict in self.verdicts if verdict.complaints]

    def summary(self) -> dict[str, object]:
        """Return counts of schedules, kills and responses, and the memory of the server."""
        statuses = sum((verdict.statuses for verdict in self.verdicts), Counter[int]())
        return {
            "schedules": len(self.verdicts),
            "failed_seeds": self.failed,
            "engine": "vllm" if self._served.in_vllm else "transformers",
            "kills": sum(verdict.kills for verdict in self.verdicts),
            "responses_by_status": {str(key): statuses[key] for key in sorted(statuses)},
            "mebibytes": [verdict.memory >> 20 for verdict in self.verdicts],
        }

    def run(self, seed: int) -> ServedVerdict:
        """Ask from several clients, kill at seeded moments, and ask everything again."""
        source, verdict, ending = random.Random(seed), ServedVerdict(seed), threading.Event()
        starts = self._served.service.starts
        clients = [
            threading.Thread(target=self._ask_on, args=(verdict, ending, source.getrandbits(32)))
            for _ in range(CLIENTS)
        ]
        for client in clients:
            client.start()
        for _ in range(source.randint(1, 3)):
            time.sleep(source.uniform(0.2, 3.0))
            verdict.kills += self._served.kill()
            if source.random() < 0.7:  # otherwise the next kill may hit an engine that loads
                wait_until(self._served.is_ready, "the server is ready again", pause=0.5)
        wait_until(self._served.is_ready, "the server is ready at last", pause=0.5)
        ending.set()
        for client in clients:
            client.join(HANG_SECONDS)
        if not verdict.kills:
            verdict.complaints.append("there was nothing to kill")
        if verdict.statuses[0] and self._served.service.starts == starts:
            verdict.complaints.append("a connection was lost, and the server had not ended")
        self._ask_all_again(verdict)
        verdict.memory = self._served.memory()
        self._check_memory(verdict)
        self.verdicts.append(verdict)
        return verdict

    def _ask_on(self, verdict: ServedVerdict, ending: threading.Event, seed: int) -> None:
        source = random.Random(seed)
        while not ending.is_set():
            self._ask(verdict, source.choice(MODELS), source.randrange(QUESTIONS))

    def _ask(self, verdict: ServedVerdict, model: str, number: int) -> int:
        status, document = self._served.ask(model, self._rows[number])
        verdict.statuses[status] += 1
        if status == http.client.OK:
            if _text(status, document) != self._expected[model, number]:
                verdict.complaints.append(f"{model} answers question {number} otherwise")
        else:
            if status and not _is_error(document):
                verdict.complaints.append(f"status {status} with {document}")
            time.sleep(0.1)
        return status

    def _ask_all_again(self, verdict: ServedVerdict) -> None:
        for model, number in self._expected:
            if (status := self._ask(verdict, model, number)) != http.client.OK:
                verdict.complaints.append(f"{model} gives status {status} after the last kill")

    def _check_memory(self, verdict: ServedVerdict) -> None:
        if self.verdicts and verdict.memory > GROWTH * self.verdicts[0].memory:
            first = self.verdicts[0].memory
            verdict.complaints.append(f"memory grew from {first} to {verdict.memory} bytes")


def _text(status: int, document: object) -> str:
    """Return what a response says.

    Raises:
        RuntimeError: the response is an error.
    """
    if status != http.client.OK or not isinstance(document, dict):
        raise RuntimeError(f"status {status}: {document}")
    choices: Sequence[dict[str, dict[str, str]]] = document["choices"]
    return choices[0]["message"]["content"]


def _is_error(document: object) -> bool:
    """Whether a document is an error in OpenAI's form."""
    error = document.get("error") if isinstance(document, dict) else None
    return isinstance(error, dict) and error.keys() == _ERROR_FIELDS


def run_served(forks: ForkServer, folder: Path, seeds: Sequence[int]) -> ServedCampaign:
    """Run the schedules of some seeds on a new server."""
    with open_server(forks, folder) as served:
        campaign = ServedCampaign(served)
        for seed in seeds:
            verdict = campaign.run(seed)
            state = "FAILED" if verdict.complaints else "ok"
            print(f"served, seed {seed} {state}: {verdict.kills} kills", flush=True)
            for complaint in verdict.complaints:
                print(f"    ! {complaint}", flush=True)
        return campaign
