"""The rounds of a distillation, in one directory.

spec.json                           the spec
inputs.json                         digests of the model and of all rows
rounds/0/evaluation.json            answers of the base to development and held-out rows
rounds/1/                           the run directory of the search of round 1
rounds/1/dataset.jsonl              the examples that its student is trained on
rounds/1/harvest.json               counts of the harvest
rounds/1/training/student/          the student, a checkpoint, with its LoRA adapter
rounds/1/training/outcome.json      steps, losses and cost of the training
rounds/1/evaluation.json            answers of the student
report.html, distillation.json      all figures; written last

A stage is finished once its last file is there, and is then not repeated. An interrupted stage is
started again: a search resumes in its lab, a harvest asks the missing experts, a training goes on
from its last checkpoint.
"""

import json
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from modnorm.analysis.distillation import (
    SCHEMA,
    Accuracy,
    BudgetOfRound,
    DistillationDocument,
    RoundEntry,
    accuracy_of,
    round_directory,
    search_entry,
)
from modnorm.analysis.report import render_distillation
from modnorm.analysis.run import load_run
from modnorm.analysis.run_files import DISTILLATION, REPORT, RESULTS
from modnorm.checkpoint.checkpoint_files import file_digest
from modnorm.checkpoint.reference import resolve_checkpoint
from modnorm.client.run_directory import RunDirectory
from modnorm.distillation.answering import answering_model
from modnorm.distillation.harvesting import COUNTS, DATASET, Harvest, derived_seed
from modnorm.errors import ConflictError, EvaluationError
from modnorm.files import encode_json, write_file
from modnorm.prediction.ensemble_definition import define_ensemble
from modnorm.prediction.ranked_votes import OnProgress
from modnorm.process_output import output_to
from modnorm.spec import DistillationSpec, ExperimentSpec, ModelSpec
from modnorm.spec.experiment import suffixed
from modnorm.spec_checks import Splits
from modnorm.tasks import task_errors
from modnorm.tasks.columns import rows_digest
from modnorm.training import TrainedStudent, TrainingJob, train_in_child
from modnorm.training.job import OUTCOME, STUDENT, require_packages
from modnorm.wire.remote_sandbox import judging_task

INPUTS, LOG = "inputs.json", "distil.log"
_TRAINING, _EVALUATION = "training", "evaluation.json"

Search = Callable[[ExperimentSpec, RunDirectory], None]
"""Runs an experiment to its end and writes its run directory."""
Counted = Callable[[str], AbstractContextManager[OnProgress]]
"""Shows the progress of a stage by name."""


@dataclass(frozen=True, slots=True)
class DistillationMeans:
    """How a distillation works on this machine."""

    search: Search
    """Runs the searches, here or in a lab."""
    announce: Callable[[str], object]
    """Gets a line at the start of every stage."""
    counted: Counted
    device: str | None = None
    """Device of torch that trains; by default the first GPU, or else the CPU."""


class Distillation:
    """A distillation in a directory that the caller has locked."""

    def __init__(
        self,
        spec: ExperimentSpec,
        settings: DistillationSpec,
        directory: Path,
        splits: Splits,
        means: DistillationMeans,
    ) -> None:
        self.spec, self.directory = spec, directory
        self._settings = settings
        self._means = means
        self._task = splits.task
        self._rows = {name: loaded.rows for name, loaded in splits.by_name.items()}

    def run(self) -> DistillationDocument:
        """Take the stages that are not finished, and write the figures of all rounds."""
        require_packages()
        RunDirectory(self.directory).check(self.spec)
        self._check_inputs()
        RunDirectory(self.directory).reserve(self.spec)
        write_file(self.directory / INPUTS, encode_json(self._inputs))
        self._evaluate(0)
        for number in range(1, self._settings.rounds + 1):
            self._search(number)
            self._harvest(number)
            self._train(number)
            self._evaluate(number)
        document = self._document()
        RunDirectory(self.directory).renew(self.spec)
        write_file(self.directory / REPORT, render_distillation(document).encode())
        write_file(self.directory / DISTILLATION, encode_json(dict(document)))
        return document

    @cached_property
    def _inputs(self) -> Mapping[str, object]:
        """Everything that the figures depend on beside the spec."""
        model = resolve_checkpoint(self.spec.model.name, self.spec.model.revision)
        return {
            "model_digest": model.digest,
            "scorer": self._task.scorer,
            **{f"{name}_digest": rows_digest(rows) for name, rows in self._rows.items()},
            **{f"{name}_rows": len(rows) for name, rows in self._rows.items()},
        }

    def _check_inputs(self) -> None:
        """Refuse a directory that was begun with other files."""
        path = self.directory / INPUTS
        begun = _read(path) if path.exists() else self._inputs
        for name, value in self._inputs.items():
            if begun.get(name) != value:
                raise ConflictError(
                    f"{self.directory} was begun with other inputs: {begun.get(name)} there, "
                    f"{value} here",
                    field=name.removesuffix("_digest").removesuffix("_rows"),
                    remedy="restore them, or name another directory with --out",
                )

    def _place(self, number: int) -> Path:
        return round_directory(self.directory, number)

    def _student(self, number: int) -> Path:
        return self._place(number) / _TRAINING / STUDENT

    def _model(self, number: int) -> ModelSpec:
        """Return the student of a round; the base for round 0."""
        return ModelSpec(name=str(self._student(number).resolve())) if number else self.spec.model

    def _searched(self, number: int) -> int:
        """Return the round whose student a round searches around; 0 for the base."""
        return number - 1 if self._settings.search_around == "student" else 0

    def _search(self, number: int) -> None:
        place = self._place(number)
        if not (place / RESULTS).exists():
            self._announce(number, "search")
            spec = search_spec(self.spec, number, self._model(self._searched(number)))
            self._means.search(spec, RunDirectory(place))

    def _harvest(self, number: int) -> None:
        place = self._place(number)
        if (place / COUNTS).exists():
            return
        settings = self._settings.harvest
        with judging_task(self.spec.task) as task, output_to(self.directory / LOG):
            harvest = Harvest(
                place=place,
                ensemble=define_ensemble(load_run(place), None, settings.experts),
                task=task,
                rows=self._rows["training"],
                settings=settings,
                seed=derived_seed("harvest", self.spec.population.seed, number),
                round_number=number,
            )
            if harvest.missing:
                self._announce(number, "harvest")
                model = self._model(self._searched(number))
                checkpoint = resolve_checkpoint(model.name, model.revision)
                with (
                    answering_model(self.spec, checkpoint, self._max_tokens) as answering,
                    self._means.counted(f"round {number}: harvest") as on_progress,
                ):
                    harvest.answer(answering, on_progress)
            accumulates = settings.accumulate and number > 1
            harvest.write_dataset(self._place(number - 1) / DATASET if accumulates else None)

    def _train(self, number: int) -> None:
        place = self._place(number)
        counts = _read(place / COUNTS)
        if not counts["dataset_examples"]:
            raise EvaluationError(
                f"round {number}: none of {counts['answers']} answers to training rows is right "
                "and complete, so there is nothing to train on",
                remedy="give more training rows, more samples or a longer completion cap "
                "(distillation.rows, distillation.harvest, task.max_tokens) and another --out",
            )
        if (place / _TRAINING / OUTCOME).exists():
            return
        self._announce(number, "training")
        start = self._model(number - 1 if self._settings.train_from == "student" else 0)
        job = TrainingJob(
            model=start.name,
            revision=start.revision,
            dataset=place / DATASET,
            training=self._settings.training,
            seed=derived_seed("training", self.spec.population.seed, number),
            directory=place / _TRAINING,
            device=self._means.device,
        )
        with (
            output_to(self.directory / LOG),
            self._means.counted(f"round {number}: training") as on_progress,
        ):
            train_in_child(job, on_progress)

    def _evaluate(self, number: int) -> None:
        """Write the greedy answers of a round's model to development and held-out rows."""
        place = self._place(number)
        if (place / _EVALUATION).exists():
            return
        self._announce(number, "evaluation")
        model = self._model(number)
        content: dict[str, object] = {}
        with (
            judging_task(self.spec.task) as task,
            output_to(self.directory / LOG),
            answering_model(
                self.spec, resolve_checkpoint(model.name, model.revision), self._max_tokens
            ) as answering,
        ):
            for name in ("development", "heldout"):
                rows = self._rows[name]
                answers = answering.answers(answering.ask(task, rows, f"{name} row"))
                correct = [answer.correct for answer in answers]
                content[name] = {
                    "metric": task_errors.metric(task, rows, correct),
                    "correct": sum(correct),
                    "answers": len(answers),
                    "tokens": sum(answer.tokens for answer in answers),
                }
        place.mkdir(parents=True, exist_ok=True)
        write_file(place / _EVALUATION, encode_json(content))

    @property
    def _max_tokens(self) -> int:
        return self.spec.task.max_tokens or self._task.max_tokens

    def _announce(self, number: int, stage: str) -> None:
        self._means.announce(f"round {number}: {stage}")

    def _document(self) -> DistillationDocument:
        rounds = [self._entry(number) for number in range(self._settings.rounds + 1)]
        made_from = load_run(self._place(1)).provenance
        correct = [
            _read(self._place(each["round"]) / _EVALUATION)["development"]["correct"]
            for each in rounds
        ]
        return DistillationDocument(
            schema=SCHEMA,
            spec=self.spec.model_dump(mode="json"),
            provenance={**made_from, **self._inputs, "spec_digest": self.spec.digest},
            best_round=max(range(1, len(rounds)), key=lambda number: (correct[number], -number)),
            rounds=rounds,
        )

    def _entry(self, number: int) -> RoundEntry:
        place = self._place(number)
        evaluation = _read(place / _EVALUATION)
        budget = BudgetOfRound(
            answers=sum(each["answers"] for each in evaluation.values()),
            tokens=sum(each["tokens"] for each in evaluation.values()),
            training_tokens=0,
            training_flops=0.0,
            training_seconds=0.0,
        )
        entry = RoundEntry(
            round=number,
            search=None,
            harvest=None,
            dataset=None,
            student=None,
            development=_accuracy(evaluation["development"]),
            heldout=_accuracy(evaluation["heldout"]),
            training=None,
            budget=budget,
        )
        if not number:
            return entry
        counts, run, around = _read(place / COUNTS), load_run(place), self._searched(number)
        trained = TrainedStudent.model_validate_json((place / _TRAINING / OUTCOME).read_bytes())
        searched = run.answers_frame(["tokens"])["tokens"]
        greedy = len(self._rows["training"]) if self._settings.harvest.only_wrong else 0
        budget["answers"] += len(searched) + counts["answers"] + greedy
        budget["tokens"] += int(searched.sum()) + counts["tokens"]
        budget["training_tokens"] = trained.tokens
        budget["training_flops"] = trained.flops
        budget["training_seconds"] = trained.seconds
        model = f"student of round {around}" if around else self.spec.model.name
        size = self._settings.harvest.experts or self.spec.population.ensemble_sizes[-1]
        entry["search"] = search_entry(run, model, size)
        entry["harvest"] = counts
        entry["dataset"] = file_digest(place / DATASET)
        entry["student"] = trained.digest
        entry["training"] = trained.model_dump(mode="json")
        return entry


def search_spec(spec: ExperimentSpec, number: int, model: ModelSpec) -> ExperimentSpec:
    """Return the spec of a round's search, an ordinary experiment around a model.

    A student's sensitivities differ from the base's, so a profile that the spec names is used for
    the base only.
    """
    method = spec.method
    if model != spec.model:
        method = method.model_copy(update={"profile": None})
    seed = spec.population.seed  # that of the first round
    if number > 1:
        seed = derived_seed("population", seed, number)
    return spec.model_copy(
        update={
            "name": suffixed(spec.name, f"round {number}"),
            "model": model,
            "method": method,
            "population": spec.population.model_copy(update={"seed": seed}),
            "distillation": None,
        }
    )


def _accuracy(answered: Mapping[str, float]) -> Accuracy:
    return accuracy_of(answered["metric"], int(answered["answers"]), int(answered["correct"]))


def _read(path: Path) -> dict[str, Any]:
    content: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return content
