"""Validation of an experiment as a whole, before any of it is stored.

Questions to the experts of a finished run are an experiment that only votes. Its candidates are
the experts and its held-out rows the questions.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlmodel import Session, select

from modnorm.analysis.run_data import select_ensemble
from modnorm.errors import ConflictError, InvalidInputError, NotFoundError, PreconditionError
from modnorm.perturbation.methods import needs_profile
from modnorm.prediction.ensemble_definition import check_votes, require_equal_prompts
from modnorm.sandbox import Runner
from modnorm.services.aggregator.experiments.upstream_services import Calibrator, Sampler
from modnorm.services.aggregator.storage.lookups import StoredText, find_experiment, load_rows
from modnorm.services.aggregator.storage.tables import Ensemble, Experiment, ExperimentState
from modnorm.services.common.background import SlowThreads
from modnorm.services.common.settings import AggregatorSettings
from modnorm.spec import DataSpec, ExperimentSpec
from modnorm.spec.experiment import suffixed
from modnorm.spec_checks import (
    check_calibration,
    check_engine,
    check_length,
    check_names,
    check_radius_is_tested_elsewhere,
    check_resolved,
    development_of,
    find_generator,
    load_splits,
    names_stored_profile,
    naming_rows,
    prompt_at_fault,
    read_profile,
    remarks_on_rows,
    rows_of,
    task_of,
)
from modnorm.tasks import Message, Row, check_sandbox
from modnorm.tasks.columns import encode_rows, prompts_digest, rows_digest
from modnorm.tasks.row_files import decode_row
from modnorm.tasks.row_loading import load_data, needs_hub, parse_question
from modnorm.tasks.task_errors import render_prompts
from modnorm.v1 import experiment_pb2

_THREADS = 8
"""Specs checked at once. They mostly wait for the hub or the sandbox, so there may be more than
cores. Each may hold a data set in memory, so there are few."""
_REREADING = 2
"""Repeated submissions checked at once. They read local files, and must not wait for the hub."""


@dataclass(frozen=True, slots=True)
class Admission:
    """A valid experiment with the texts that it needs."""

    inputs: Mapping[str, Any]
    """Columns of its row that do not depend on the request."""
    texts: Sequence[StoredText]
    remarks: Sequence[str] = ()
    """Words for its first event."""
    asked_run: str = ""
    """Id of the finished run whose experts answer questions; empty for a search."""
    questions: Sequence[Sequence[Message]] = ()
    """Prompts of the questions."""


class Admissions:
    """Checks specs, with the help of sampler, calibrator and sandbox."""

    def __init__(
        self,
        sampler: Sampler,
        calibrator: Calibrator,
        settings: AggregatorSettings,
        sandbox: Runner | None,
        engines: Collection[str] | None = None,
    ) -> None:
        self._sampler = sampler
        self._calibrator = calibrator
        self._data_roots = settings.data_roots
        self._sandbox = sandbox
        # Those of fetched data first.
        named = (*(settings.data_roots or ()), *(settings.split_folders or ()))
        self._split_folders = (settings.cache / "data", *named)
        self._engines = engines
        self._threads = SlowThreads(_THREADS, "admission")
        self._rereading = SlowThreads(_REREADING, "rereading")

    def close(self) -> None:
        """Stop the threads, after the last call."""
        self._threads.close()
        self._rereading.close()

    async def admit(self, spec: ExperimentSpec) -> Admission:
        check_resolved(spec)
        check_names(spec)
        check_engine(spec, self._engines)
        isolation = await self._threads.run(check_sandbox, spec.task.name, self._sandbox)
        roots, folders = self._data_roots, self._split_folders
        data = await self._threads.run(load_splits, spec, roots=roots, folders=folders)
        max_tokens = spec.task.max_tokens or data.task.max_tokens
        prompts = await self._threads.run(data.prompts)
        with naming_rows(spec, data):
            model = await self._sampler.inspect(spec, prompts, max_tokens)
        check_length(spec, model.longest_prompt, max_tokens)
        heldout_prompts = data.heldout_of(prompts)
        check_radius_is_tested_elsewhere(spec, data.heldout.rows, heldout_prompts)
        _check_radius(spec, model.model_digest)
        if needs_profile(spec.method.name) and spec.method.profile is None:
            check_calibration(spec, len(data.selection.rows), model.num_layers)
        selection, heldout = (stored_rows(one.rows) for one in (data.selection, data.heldout))
        development = stored_rows(data.development.rows) if data.development else None
        profile = await self._profile(spec, model.model_digest)
        generator = await self._generator(spec, model.model_digest)
        inputs = {
            "spec_json": spec.model_dump_json(),
            "spec_digest": spec.digest,
            "model_digest": model.model_digest,
            "scorer": data.task.scorer,
            "max_tokens": max_tokens,
            "profile_digest": profile.digest if profile else None,
            "selection_digest": selection.digest,
            "selection_rows": len(data.selection.rows),
            "selection_revision": data.selection.revision,
            "heldout_digest": heldout.digest,
            "heldout_rows": len(data.heldout.rows),
            "heldout_revision": data.heldout.revision,
            "development_digest": development.digest if development else "",
            "development_rows": len(data.development.rows) if data.development else 0,
            "generator_digest": generator.digest if generator else "",
            "prompts_digest": prompts_digest(heldout_prompts),
        }
        texts = (selection, heldout, development, generator, profile)
        remarks = await self._threads.run(remarks_on_rows, spec, data)
        if isolation:
            programs = f"programs of the model run in a sandbox with {isolation.summary}"
            remarks = [programs, *remarks]
        return Admission(inputs, [text for text in texts if text], remarks)

    async def check_unchanged(self, experiment: Experiment) -> None:
        """Refuse a repeated submission whose scorer, prompts or local files changed.

        A spec holds paths, not contents, so it still names the stored experiment.
        """
        remedy = (
            "restore the old content, or submit under another `name`; `modnorm run` also takes "
            "another --out"
        )
        try:
            inputs = await self._rereading.run(list, self._inputs(experiment))
        except InvalidInputError as error:  # gone, or no rows any more
            raise ConflictError(
                f"{error.message}; the experiment {experiment.id} was started with it",
                field=error.field,
                remedy=remedy,
            ) from error
        for field, digest, stored in inputs:
            if digest != stored:
                raise ConflictError(
                    f"changed since the experiment {experiment.id} started: {stored[:32]} then, "
                    f"{digest[:32]} now",
                    field=field,
                    remedy=remedy,
                )

    def _inputs(self, experiment: Experiment) -> Iterator[tuple[str, str, str]]:
        """Yield field, digest now and stored digest of the scorer and of each local file.

        Prompts are compared if the held-out rows are a local file.
        """
        spec, roots, folders = experiment.spec, self._data_roots, self._split_folders
        task = task_of(spec)
        yield "task", task.scorer, experiment.scorer
        stored = {
            "task.selection": experiment.selection_digest,
            "task.heldout": experiment.heldout_digest,
            development_of(spec)[0]: experiment.development_digest,
        }
        for field, named in rows_of(spec).items():
            if needs_hub(named.source, folders, field=field):
                continue
            data = load_data(task, named, field=field, roots=roots, folders=folders)
            yield field, rows_digest(data.rows), stored[field]
            if field == "task.heldout":
                prompts = render_prompts(task, data.rows, "heldout row")
                yield "task", prompts_digest(prompts), experiment.prompts_digest
        profile = spec.method.profile
        generator = spec.iterative.generator if spec.iterative else None
        if profile is not None and not names_stored_profile(profile):
            digest = StoredText.of(read_profile(profile, roots)).digest
            yield "method.profile", digest, experiment.profile_digest or ""
        if generator is not None:
            digest = find_generator(generator, roots).digest
            yield "iterative.generator", digest, experiment.generator_digest

    async def check_questions(self, admission: Admission) -> None:
        """Refuse questions that are too long for the model, the engine or one call."""
        spec = ExperimentSpec.model_validate_json(admission.inputs["spec_json"])
        max_tokens = admission.inputs["max_tokens"]
        try:
            model = await self._sampler.inspect(spec, admission.questions, max_tokens)
            check_length(spec, model.longest_prompt, max_tokens)
        except InvalidInputError as error:
            row = prompt_at_fault(error)
            if row is None and error.field not in {"task", "engine.max_model_len"}:
                raise
            place = "" if row is None else f"row {row}: "
            raise InvalidInputError(
                f"{place}{error.message}", field="questions", remedy="shorten or drop questions"
            ) from error

    async def _profile(self, spec: ExperimentSpec, model_digest: str) -> StoredText | None:
        """Return the profile that a spec names, checked by building a scale map with it."""
        name = spec.method.profile
        if name is None:
            return None
        if names_stored_profile(name):
            try:
                stored = await self._calibrator.profile(name)
            except NotFoundError as error:
                raise InvalidInputError(
                    error.message,
                    field="method.profile",
                    remedy="name a stored profile, or omit the field to calibrate one",
                ) from error
            profile = StoredText(stored.digest, stored.json)
        else:
            profile = StoredText.of(await self._threads.run(read_profile, name, self._data_roots))
        await self._sampler.scale_map(spec.model, model_digest, spec.method, profile.text)
        return profile

    async def _generator(self, spec: ExperimentSpec, model_digest: str) -> StoredText | None:
        """Return the generator that a spec names, if any; check that it fits the model."""
        name = spec.iterative.generator if spec.iterative else None
        if name is None:
            return None
        generator = await self._threads.run(find_generator, name, self._data_roots)
        scale_map = await self._sampler.scale_map(spec.model, model_digest, spec.method)
        generator.check_model([(tensor.name, tensor.shape) for tensor in scale_map.tensors])
        return StoredText(generator.digest, generator.canonical)


def _check_radius(spec: ExperimentSpec, model_digest: str) -> None:
    """Refuse a radius that was chosen for another model."""
    source = spec.method.radius_source
    if source is None:
        return
    if not source.transfer and source.model_digest != model_digest:
        raise InvalidInputError(
            f"the radius artifact is of model {(source.model_digest or '')[:12]}, "
            f"this is model {model_digest[:12]} ({spec.model.name})",
            field="method.radius",
            remedy="choose a radius for this model, or set `transfer: true` beside the artifact",
        )


def stored_rows(rows: Sequence[Row]) -> StoredText:
    """Return rows as JSON lines with their digest."""
    return StoredText.of("\n".join(encode_rows(rows)))


def admit_questions(session: Session, asked: experiment_pb2.Questions) -> Admission:
    if not asked.rows:
        raise InvalidInputError(
            "there are no questions", field="questions", remedy="give one row at least"
        )
    run = find_experiment(session, asked.of)
    check_votes(run.spec)
    if run.state is not ExperimentState.SUCCEEDED:
        raise PreconditionError(
            f"the experiment is {run.state.lower()}, and only a finished one predicts",
            field="experiment_id",
            remedy="`modnorm watch` waits for its end",
        )
    ensembles = session.exec(select(Ensemble).where(Ensemble.experiment_id == run.id)).all()
    ensemble = select_ensemble(
        ensembles,
        asked.population if asked.HasField("population") else None,
        asked.ensemble_size if asked.HasField("ensemble_size") else None,
    )
    task = run.task()
    require_equal_prompts(task, load_rows(session, run.heldout_digest), run.prompts_digest)
    try:
        rows = [
            parse_question(task, decode_row(text, place, field="questions"), place)
            for place, text in ((f"row {n}", text) for n, text in enumerate(asked.rows))
        ]
    except InvalidInputError as error:
        raise InvalidInputError(error.message, field="questions", remedy=error.remedy) from error
    questions = stored_rows(rows)
    population = run.spec.population.model_copy(
        update={
            "size": ensemble.population,
            "prefixes": (),
            "ensemble_sizes": (ensemble.ensemble_size,),
        }
    )
    heldout = DataSpec(source=f"questions:{questions.digest}")
    spec = run.spec.model_copy(
        update={
            "name": suffixed(run.spec.name, f"questions to {run.id}"),
            "task": run.spec.task.model_copy(update={"heldout": heldout}),
            "population": population,
        }
    )
    inputs = {
        "spec_json": spec.model_dump_json(),
        "spec_digest": spec.digest,
        "model_digest": run.model_digest,
        "scorer": run.scorer,
        "max_tokens": run.max_tokens,
        "scale_map_digest": run.scale_map_digest,
        "selection_digest": run.selection_digest,
        "selection_rows": run.selection_rows,
        "heldout_digest": questions.digest,
        "heldout_rows": len(asked.rows),
        "experts": ensemble.experts,
    }
    prompts = render_prompts(task, rows, "question")
    return Admission(inputs, [questions], asked_run=run.id, questions=prompts)
