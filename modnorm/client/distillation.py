"""A finished distillation, fetched from its lab and written as a directory.

spec.json                     the spec
report.html                   one page with all figures
distillation.json             the figures of all rounds; written last
rounds/1/                     the run directory of the search of round 1
rounds/1/dataset.jsonl        the examples that its student was trained on
"""

from pathlib import Path

from google.protobuf import json_format

from modnorm.analysis.distillation import (
    SCHEMA,
    BudgetOfRound,
    DistillationDocument,
    RoundEntry,
    SearchEntry,
    accuracy_of,
    round_directory,
    search_entry,
)
from modnorm.analysis.distillation_report import REPORT, render_distillation
from modnorm.analysis.run_files import DISTILLATION
from modnorm.client.calls import get_artifact, get_experiment
from modnorm.client.connection import Connection
from modnorm.client.export import save_run
from modnorm.client.finished import check_succeeded
from modnorm.client.lab_run import LabRun
from modnorm.client.rundir import spec_file
from modnorm.files import encode_json, write_file
from modnorm.spec import ExperimentSpec
from modnorm.v1 import evaluation_pb2 as evaluation
from modnorm.v1 import experiment_pb2 as experiments
from modnorm.wire.conversions import spec_from_proto
from modnorm.wire.run_messages import provenance

DATASET = "dataset.jsonl"
_COUNTS = ("answers", "right", "rows", "examples", "dataset_examples", "tokens")


def save_distillation(
    client: Connection, experiment: experiments.Experiment, directory: Path
) -> DistillationDocument:
    """Write the directory of a finished distillation, which needs its lab no more.

    Returns:
        The content of `distillation.json`.

    Raises:
        PreconditionError: it has not succeeded.
        OSError: the directory cannot be written.
    """
    for result in experiment.rounds:
        if result.search_id:
            _save_search(client, experiment, result, round_directory(directory, result.round))
    document = distillation_document(client, experiment)
    write_file(directory / REPORT, render_distillation(document).encode())
    write_file(directory / DISTILLATION, encode_json(dict(document)))
    return document


def distillation_document(
    client: Connection, experiment: experiments.Experiment
) -> DistillationDocument:
    """Return the figures of a finished distillation.

    Raises:
        PreconditionError: it has not succeeded.
    """
    check_succeeded(experiment)
    spec = spec_from_proto(experiment.spec)
    best = [each.round for each in experiment.rounds if each.best]
    return DistillationDocument(
        schema=SCHEMA,
        experiment=experiment.id,
        spec=spec.model_dump(mode="json"),
        provenance=provenance(experiment),
        best_round=best[0] if best else None,
        rounds=[_round_entry(client, experiment, spec, each) for each in experiment.rounds],
    )


def _round_entry(
    client: Connection,
    experiment: experiments.Experiment,
    spec: ExperimentSpec,
    result: experiments.RoundResult,
) -> RoundEntry:
    made_from, training = experiment.provenance, result.training
    return RoundEntry(
        round=result.round,
        search=_search_entry(client, spec, result) if result.search_id else None,
        harvest=_counts(result) if result.HasField("harvest") else None,
        dataset=result.dataset_digest or None,
        student=result.student_digest or None,
        development=accuracy_of(
            result.development_metric if result.HasField("development_metric") else None,
            made_from.development_rows,
            result.development_correct,
        ),
        heldout=accuracy_of(
            result.heldout_metric if result.HasField("heldout_metric") else None,
            made_from.heldout_rows,
            result.heldout_correct,
        ),
        training=_training(training) if result.HasField("training") else None,
        budget=BudgetOfRound(
            answers=result.spent.answers,
            tokens=result.spent.tokens,
            training_tokens=training.tokens,
            training_flops=training.flops,
            training_seconds=training.seconds,
        ),
    )


def _search_entry(
    client: Connection, spec: ExperimentSpec, result: experiments.RoundResult
) -> SearchEntry:
    found = client.call(get_experiment(result.search_id))
    settings = spec.distillation
    size = (settings and settings.harvest.experts) or spec.population.ensemble_sizes[-1]
    return search_entry(LabRun(client, found), result.searched_model, size)


def _save_search(
    client: Connection,
    experiment: experiments.Experiment,
    result: experiments.RoundResult,
    place: Path,
) -> None:
    """Write the run directory of a round's search, and its dataset."""
    place.mkdir(parents=True, exist_ok=True)
    dataset = get_artifact(experiment.id, experiments.ARTIFACT_KIND_DATASET, result.round)
    write_file(place / DATASET, client.read(dataset) + b"\n")
    found = client.call(get_experiment(result.search_id))
    content = spec_from_proto(found.spec).model_dump(mode="json")
    write_file(spec_file(place), encode_json(content))
    save_run(client, found, place)


def _counts(result: experiments.RoundResult) -> dict[str, int]:
    return {name: getattr(result.harvest, name) for name in _COUNTS}


def _training(message: evaluation.TrainReport) -> dict[str, object]:
    content: dict[str, object] = json_format.MessageToDict(
        message, preserving_proto_field_name=True
    )
    return content
