"""Finding the experiment of a run directory again, to read what its lab stored."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from modnorm.client.client import ModnormClient
from modnorm.client.embedded import embedded_client
from modnorm.client.rundir import hold, spec_file, state_directory
from modnorm.client.settings import ClientSettings
from modnorm.errors import InvalidInputError, PreconditionError
from modnorm.spec import ExperimentSpec, load_spec
from modnorm.v1 import experiment_pb2 as experiments
from modnorm.wire.conversions import spec_from_proto

_FIELD = "run"


@dataclass(frozen=True, slots=True)
class StoredRun:
    """The directory of a run whose lab's state is at hand."""

    path: Path
    home: Path
    """Where the lab worked: `path`, or the directory around it when several specs shared a lab."""
    spec: ExperimentSpec

    @contextmanager
    def open(
        self, settings: ClientSettings
    ) -> Iterator[tuple[ModnormClient, experiments.Experiment]]:
        """Keep the directory, start its lab without an evaluator, and find the experiment.

        Args:
            settings: Settings of the client.

        Raises:
            PreconditionError: another process works there, or the lab does not know the spec.
        """
        with hold(self.home), embedded_client(self.home, settings, evaluate=False) as client:
            yield client, client.get(self._find(client))

    def _find(self, client: ModnormClient) -> str:
        """Return the id of the experiment; one that succeeded if there are several."""
        found = [each for each in client.list() if spec_from_proto(each.spec) == self.spec]
        if not found:
            raise PreconditionError(
                f"the lab of {self.home} has no experiment of the spec in {self.path}",
                field=_FIELD,
                remedy="run the spec in a directory of its own",
            )
        return max(found, key=_succeeded).id


def find_run(path: Path) -> StoredRun:
    """Return the run of a directory.

    Raises:
        InvalidInputError: it is no directory of one run.
        PreconditionError: what its lab stored is not there.
    """
    if not spec_file(path).is_file():
        raise _no_run(path)
    spec = load_spec(spec_file(path))
    for home in (path, path.resolve().parent):
        if any(state_directory(home).glob("*.db")):
            return StoredRun(path, home, spec)
    raise PreconditionError(
        f"{path} holds results, but not the lab that stored what they were made from",
        field=_FIELD,
        remedy="name the experiment's id (timings.json has it), and its lab with --server or "
        "MODNORM_SERVER",
    )


def _succeeded(experiment: experiments.Experiment) -> bool:
    return experiment.state == experiments.EXPERIMENT_STATE_SUCCEEDED


def _no_run(path: Path) -> InvalidInputError:
    inside = sorted(str(child) for child in path.glob("*/") if spec_file(child).is_file())
    if inside:
        return InvalidInputError(
            f"{path} holds several runs", field=_FIELD, remedy=f"name one: {', '.join(inside)}"
        )
    return InvalidInputError(
        f"{path} is no directory of a run",
        field=_FIELD,
        remedy="name what `modnorm run` wrote, or an experiment's id and its lab with --server or "
        "MODNORM_SERVER",
    )
