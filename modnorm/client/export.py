"""A finished experiment, fetched from its lab and written as a run directory."""

import time
from pathlib import Path

from modnorm.analysis.document import ResultsDocument
from modnorm.analysis.export import write_run
from modnorm.analysis.records import write_records
from modnorm.analysis.run_data import RunData
from modnorm.client.connection import Connection
from modnorm.client.lab_run import LabRun
from modnorm.client.watch import watch_messages
from modnorm.v1 import experiment_pb2 as experiments
from modnorm.wire.run_messages import data_records, overlap, state_row, timings


def save_run(
    client: Connection, experiment: experiments.Experiment, directory: Path
) -> ResultsDocument:
    """Write the directory of a finished experiment, which needs its lab no more.

    Older files are replaced. `results.json` is written last: where it is, the others are whole.

    Returns:
        The content of `results.json`.

    Raises:
        PreconditionError: it has not succeeded.
        OSError: the directory cannot be written.
    """
    started = time.monotonic()
    found = LabRun(client, experiment)
    run = _run_data(client, found)
    write_records(directory, found, run.votes)
    return write_run(directory, run, started=started)


def fetch_run(client: Connection, experiment: experiments.Experiment) -> RunData:
    """Fetch the inputs of a run's figures.

    Raises:
        PreconditionError: it has not succeeded.
    """
    return _run_data(client, LabRun(client, experiment))


def _run_data(client: Connection, found: LabRun) -> RunData:
    experiment = found.experiment
    return RunData(
        spec=found.spec.model_dump(mode="json"),
        provenance=found.provenance,
        data=data_records(experiment),
        overlap=overlap(found.task, found.rows("selection"), found.rows("heldout")),
        candidates=found.candidates,
        base=found.base,
        ensembles=found.ensembles,
        votes={
            (each.population, each.ensemble_size): found.plain_votes(each)
            for each in found.ensembles
        },
        states=[state_row(each) for each in experiment.states],
        timings=timings(experiment, watch_messages(client, experiment.id)),
    )
