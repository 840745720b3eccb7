"""Validation of an experiment as a whole, before any of it is stored."""

import hashlib
import re
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from modnorm.errors import InvalidInputError, NotFoundError
from modnorm.perturbation.methods import refuse_unused_profile
from modnorm.sandbox import Runner
from modnorm.services.aggregator.experiments.upstream_services import Calibrator, Sampler
from modnorm.services.aggregator.storage.lookups import StoredText
from modnorm.services.common.background import SlowThreads
from modnorm.spec import ExperimentSpec
from modnorm.spec_checks import (
    Splits,
    check_calibration,
    check_engine,
    check_radius_is_tested_elsewhere,
    check_resolved,
    development_of,
    find_generator,
    load_splits,
    names_stored_profile,
    read_profile,
)
from modnorm.tasks import Row, check_sandbox
from modnorm.tasks.columns import encode_rows, prompts_digest
from modnorm.tasks.row_loading import LoadedRows
from modnorm.tasks.task_errors import count_shared_prompts

_PROMPT = re.compile(r"prompts\.([0-9]+)")
_THREADS = 8
"""Specs checked at once. They mostly wait for the hub or the sandbox, so there may be more than
cores. Each may hold a data set in memory, so there are few."""
_PROBE_DIGEST = "0" * 64
"""Placeholder for the scale map when only the names in a population are checked."""


@dataclass(frozen=True, slots=True)
class Admission:
    """A valid experiment with all its inputs."""

    spec: ExperimentSpec
    model_digest: str
    scorer: str
    max_tokens: int
    selection: StoredText
    selection_rows: int
    heldout: StoredText
    heldout_rows: int
    needs_profile: bool
    profile: StoredText | None
    selection_revision: str | None = None
    """Commit of the Hugging Face dataset with the selection rows."""
    heldout_revision: str | None = None
    isolation: str = ""
    """Description of the sandbox's isolation; empty if the task runs no programs."""
    overlap: int = 0
    """Held-out rows that have the prompt of a selection row."""
    development: StoredText | None = None
    """Rows that select among the states of an iterative run."""
    development_rows: int = 0
    development_overlap: int = 0
    """Held-out rows that have the prompt of a development row."""
    generator: StoredText | None = None
    """The generator that proposes the amplitudes of a ZO-Finetuner."""
    prompts_digest: str = ""
    """Digest of the prompts of the held-out rows."""
    of: str = ""
    """Id of the finished run whose experts answer questions; empty for a search."""
    experts: str = "[]"
    """JSON list of these experts, best first."""


class Admissions:
    """Checks specs, with the help of sampler, calibrator and sandbox."""

    def __init__(  # noqa: PLR0913 - the last two by keyword
        self,
        sampler: Sampler,
        calibrator: Calibrator,
        data_roots: Sequence[Path] | None,
        sandbox: Runner | None,
        *,
        split_folders: Sequence[Path] = (),
        engines: Collection[str] | None = None,
    ) -> None:
        self._sampler = sampler
        self._calibrator = calibrator
        self._data_roots = data_roots
        self._sandbox = sandbox
        self._split_folders = split_folders
        self._engines = engines
        self._threads = SlowThreads(_THREADS, "admission")

    def close(self) -> None:
        """Stop the threads, after the last call."""
        self._threads.close()

    async def admit(self, spec: ExperimentSpec) -> Admission:
        """Return the inputs of the experiment of a spec."""
        check_resolved(spec)
        check_engine(spec, self._engines)
        isolation = await self._threads.run(check_sandbox, spec.task.name, self._sandbox)
        data = await self._threads.run(self._load, spec)
        max_tokens = spec.task.max_tokens or data.task.max_tokens
        prompts = await self._threads.run(data.prompts)
        with _naming_rows(spec, data):
            model = await self._sampler.inspect(spec, prompts, max_tokens)
        _check_length(spec, model.longest_prompt, max_tokens)
        heldout_prompts = data.heldout_of(prompts)
        check_radius_is_tested_elsewhere(spec, data.heldout.rows, heldout_prompts)
        _check_radius(spec, model.model_digest)
        await self._sampler.descriptors(spec, _PROBE_DIGEST, 1)
        needs_profile = await self._sampler.needs_profile(spec, model.model_digest)
        if needs_profile and spec.method.profile is None:
            check_calibration(spec, len(data.selection.rows), model.num_layers)
        return Admission(
            spec=spec,
            model_digest=model.model_digest,
            scorer=data.task.scorer,
            max_tokens=max_tokens,
            selection=stored_rows(data.selection.rows),
            selection_rows=len(data.selection.rows),
            selection_revision=data.selection.revision,
            heldout=stored_rows(data.heldout.rows),
            heldout_rows=len(data.heldout.rows),
            heldout_revision=data.heldout.revision,
            needs_profile=needs_profile,
            profile=await self._profile(spec, model.model_digest, needed=needs_profile),
            isolation=isolation.summary if isolation else "",
            overlap=await self._threads.run(_count_shared, data, data.selection),
            development=stored_rows(data.development.rows) if data.development else None,
            development_rows=len(data.development.rows) if data.development else 0,
            development_overlap=await self._threads.run(_count_shared, data, data.development),
            generator=await self._generator(spec, model.model_digest),
            prompts_digest=prompts_digest(heldout_prompts),
        )

    def _load(self, spec: ExperimentSpec) -> Splits:
        return load_splits(spec, roots=self._data_roots, folders=self._split_folders)

    async def _profile(
        self, spec: ExperimentSpec, model_digest: str, *, needed: bool
    ) -> StoredText | None:
        """Return the profile that a spec names, checked by building a scale map with it."""
        name = spec.method.profile
        if name is None:
            return None
        refuse_unused_profile(spec.method, needed=needed)
        if names_stored_profile(name):
            profile = await self._by_digest(name)
        else:
            profile = _stored(await self._threads.run(read_profile, name, self._data_roots))
        await self._sampler.scale_map(spec, model_digest, profile.text)
        return profile

    async def _generator(self, spec: ExperimentSpec, model_digest: str) -> StoredText | None:
        """Return the generator that a spec names, if any; check that it fits the model."""
        name = spec.iterative.generator if spec.iterative else None
        if name is None:
            return None
        generator = await self._threads.run(find_generator, name, self._data_roots)
        scale_map = await self._sampler.scale_map(spec, model_digest, None)
        generator.check_model([(tensor.name, tensor.shape) for tensor in scale_map.tensors])
        return StoredText(generator.digest, generator.text)

    async def _by_digest(self, digest: str) -> StoredText:
        try:
            profile = await self._calibrator.profile(digest)
        except NotFoundError as error:
            raise InvalidInputError(
                error.message,
                field="method.profile",
                remedy="name a stored profile, or omit the field to calibrate one",
            ) from error
        return StoredText(profile.digest, profile.json)


@contextmanager
def _naming_rows(spec: ExperimentSpec, data: Splits) -> Iterator[None]:
    """Replace the prompt's index in an error by the source and the place of its row."""
    try:
        yield
    except InvalidInputError as error:
        match = _PROMPT.fullmatch(error.field or "")
        if match is None:
            raise
        index = int(match[1])
        splits = [
            ("task.selection", spec.task.selection, data.selection),
            ("task.heldout", spec.task.heldout, data.heldout),
        ]
        place, chosen_on = development_of(spec)
        if data.development and chosen_on:
            splits.append((place, chosen_on, data.development))
        while index >= len(splits[0][2].rows):
            index -= len(splits.pop(0)[2].rows)
        field, named, rows = splits[0]
        raise InvalidInputError(
            f"{named.source}, {rows.places[index]}: {error.message}",
            field=field,
            remedy=error.remedy,
        ) from error


def _check_length(spec: ExperimentSpec, longest_prompt: int, max_tokens: int) -> None:
    """Refuse an engine whose sequences are shorter than those of the task."""
    bound, needed = spec.engine.max_model_len, longest_prompt + max_tokens
    if bound is not None and bound < needed:
        raise InvalidInputError(
            f"the longest prompt has {longest_prompt} tokens, and {max_tokens} may follow",
            field="engine.max_model_len",
            remedy=f"raise it to {needed}, or omit it",
        )


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


def _count_shared(data: Splits, choosing: LoadedRows | None) -> int:
    """Return how many held-out rows have the prompt of a row that chooses; 0 without any."""
    return count_shared_prompts(data.task, choosing.rows, data.heldout.rows) if choosing else 0


def stored_rows(rows: Sequence[Row]) -> StoredText:
    """Return rows as JSON lines with their digest."""
    return _stored("\n".join(encode_rows(rows)))


def _stored(text: str) -> StoredText:
    return StoredText(hashlib.sha256(text.encode()).hexdigest(), text)
