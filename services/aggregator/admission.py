"""Whether an experiment can be run: all of it is checked before any of it is stored."""

import hashlib
import json
import re
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from modnorm.baselines.generator_file import read_generator, unfit
from modnorm.calibration.schedule import require_every_layer
from modnorm.errors import InvalidInputError, NotFoundError
from modnorm.sandbox import Runner
from modnorm.spec import ExperimentSpec
from modnorm.tasks import Message, Row, Task, check_sandbox, get_stored_task
from modnorm.tasks.data import LoadedRows, encode_rows, load_data
from modnorm.tasks.faults import render
from modnorm.tasks.files import confined
from services.aggregator.stores.experiments import Admission, StoredText
from services.aggregator.upstream import Calibrator, Sampler
from services.common.slow_threads import SlowThreads

_DIGEST = re.compile("[0-9a-f]{16}|[0-9a-f]{64}")
_PROMPT = re.compile(r"prompts\.([0-9]+)")
_MAX_PROFILE_BYTES = 64 * 2**20
_MAX_GENERATOR_BYTES = 256 * 2**20
_THREADS = 8
"""Where specs are checked, one each: they mostly wait for the hub or the sandbox, so more than
cores, but few, since each may hold a data set in memory. Others wait for their turn."""
_PROBE_DIGEST = "0" * 64
"""Stands for the scale map, where only the names in a population are checked."""


@dataclass(frozen=True, slots=True)
class _Data:
    task: Task
    selection: LoadedRows
    heldout: LoadedRows
    development: LoadedRows | None

    def prompts(self) -> list[Sequence[Message]]:
        """Return the messages of the rows of all splits.

        Raises:
            InvalidInputError: the code of the task raises; the message names the row.
        """
        development = self.development.rows if self.development else ()
        return [
            *render(self.task, self.selection.rows, "selection row"),
            *render(self.task, self.heldout.rows, "heldout row"),
            *render(self.task, development, "development row"),
        ]


class Admissions:
    """Checks specs with the help of the services that know models, methods and noise.

    Args:
        sampler: Knows models, methods and noise schemes.
        calibrator: Has profiles.
        data_roots: Where data and profile files may lie; anywhere when None.
        sandbox: Where evaluators run the programs of a task.
        split_folders: Where named splits are looked for before the hub.
        engines: All engines that evaluators have, where that is known.
    """

    def __init__(  # noqa: PLR0913 - the last two by keyword; they are what specs are held against
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
        """Let go of the threads; used when no call comes any more."""
        self._threads.close()

    async def admit(self, spec: ExperimentSpec) -> Admission:
        """Return all that the experiment of a spec starts from.

        Raises:
            InvalidInputError: names the field of the spec that is at fault.
            PreconditionError: the task runs programs, and there is no sandbox.
            UnavailableError: a service that knows more is down, or the sandbox does not isolate.
        """
        _check_settled(spec)
        _check_engine(spec, self._engines)
        isolation = await self._threads.run(check_sandbox, spec.task.name, self._sandbox)
        data = await self._threads.run(self._load, spec)
        max_tokens = spec.task.max_tokens or data.task.max_tokens
        prompts = await self._threads.run(data.prompts)
        with _blaming_rows(spec, data):
            model = await self._sampler.inspect(spec, prompts, max_tokens)
        _check_length(spec, model.longest_prompt, max_tokens)
        heldout = _stored_rows(data.heldout.rows)
        _check_radius(spec, model.model_digest, heldout.digest)
        await self._sampler.descriptors(spec, _PROBE_DIGEST, 1)
        needs_profile = await self._sampler.needs_profile(spec, model.model_digest)
        if needs_profile and spec.method.profile is None:
            examples = min(spec.calibration.examples, len(data.selection.rows))
            per_example = spec.calibration.layers_per_example
            require_every_layer(examples, per_example, model.num_layers)
        return Admission(
            spec=spec,
            model_digest=model.model_digest,
            scorer=data.task.scorer,
            max_tokens=max_tokens,
            selection=_stored_rows(data.selection.rows),
            selection_rows=len(data.selection.rows),
            selection_revision=data.selection.revision,
            heldout=heldout,
            heldout_rows=len(data.heldout.rows),
            heldout_revision=data.heldout.revision,
            needs_profile=needs_profile,
            profile=await self._profile(spec, model.model_digest, needed=needs_profile),
            fences=isolation.summary if isolation else "",
            overlap=_overlap(data.selection, data.heldout),
            development=_stored_rows(data.development.rows) if data.development else None,
            development_rows=len(data.development.rows) if data.development else 0,
            development_overlap=_overlap(data.development, data.heldout)
            if data.development
            else 0,
            generator=await self._generator(spec, model.model_digest),
        )

    def _load(self, spec: ExperimentSpec) -> _Data:
        named, roots = spec.task, self._data_roots
        if named.selection == named.heldout:
            raise InvalidInputError(
                "names the same rows as task.selection",
                field="task.heldout",
                remedy="name other rows, or another offset: what was selected for is no test",
            )
        task = get_stored_task(named.name, scorer=named.scorer, declaration=named.declaration)
        load = partial(load_data, task, roots=roots, folders=self._split_folders)
        chosen_on = spec.iterative.development if spec.iterative else None
        if chosen_on is not None and chosen_on in {named.selection, named.heldout}:
            raise InvalidInputError(
                "names the same rows as the task does",
                field="iterative.development",
                remedy="name other rows, or another offset: what was trained on chooses badly",
            )
        return _Data(
            task=task,
            development=load(chosen_on, field="iterative.development") if chosen_on else None,
            selection=load(named.selection, field="task.selection"),
            heldout=load(named.heldout, field="task.heldout"),
        )

    async def _profile(
        self, spec: ExperimentSpec, model_digest: str, *, needed: bool
    ) -> StoredText | None:
        """Return the profile that a spec names, once the sampler has built a scale map with it."""
        name = spec.method.profile
        if name is None:
            return None
        if not needed:
            raise InvalidInputError(
                f"{spec.method.name} uses no profile",
                field="method.profile",
                remedy="leave it out",
            )
        if _DIGEST.fullmatch(name):
            profile = await self._by_digest(name)
        else:
            profile = await self._threads.run(self._from_file, name)
        await self._sampler.scale_map(spec, model_digest, profile.text)
        return profile

    async def _generator(self, spec: ExperimentSpec, model_digest: str) -> StoredText | None:
        """Return the generator that a spec names, if it is of the spec's model."""
        name = spec.iterative.generator if spec.iterative else None
        if name is None:
            return None
        path = confined(name, "iterative.generator", self._data_roots)
        generator = read_generator(await self._threads.run(_read_generator, path))
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
                remedy="name a stored profile, or leave it out to have one calibrated",
            ) from error
        return StoredText(profile.digest, profile.json)

    def _from_file(self, name: str) -> StoredText:
        """Read a profile file; its digest is that of its canonical JSON."""
        path = confined(name, "method.profile", self._data_roots)
        try:
            if path.stat().st_size > _MAX_PROFILE_BYTES:
                raise _bad_profile(f"{name} is too large for a profile")
            content = json.loads(path.read_text(encoding="utf-8"))
            text = json.dumps(content, sort_keys=True, separators=(",", ":"), allow_nan=False)
        except (OSError, ValueError, RecursionError) as error:
            raise _bad_profile(f"cannot read {name}: {error}") from error
        return StoredText(hashlib.sha256(text.encode()).hexdigest(), text)


def _read_generator(path: Path) -> str:
    try:
        if path.stat().st_size > _MAX_GENERATOR_BYTES:
            raise unfit(f"{path.name} is too large for a generator")
        return path.read_text(encoding="utf-8")
    except (OSError, ValueError) as error:
        raise unfit(f"cannot read {path.name}: {error}") from error


@contextmanager
def _blaming_rows(spec: ExperimentSpec, data: _Data) -> Iterator[None]:
    """Name the row of a prompt that does not fit, as malformed rows are named."""
    try:
        yield
    except InvalidInputError as error:
        found = _PROMPT.fullmatch(error.field or "")
        if found is None:
            raise
        index = int(found[1])
        splits = [
            ("task.selection", spec.task.selection, data.selection),
            ("task.heldout", spec.task.heldout, data.heldout),
        ]
        if data.development and spec.iterative and spec.iterative.development:
            place = "iterative.development"
            splits.append((place, spec.iterative.development, data.development))
        while index >= len(splits[0][2].rows):
            index -= len(splits.pop(0)[2].rows)
        field, named, rows = splits[0]
        raise InvalidInputError(
            f"{named.source}, {rows.places[index]}: {error.message}",
            field=field,
            remedy=error.remedy,
        ) from error


def _check_length(spec: ExperimentSpec, longest_prompt: int, max_tokens: int) -> None:
    """Refuse an engine that would be started for sequences shorter than the task's."""
    bound, needed = spec.engine.max_model_len, longest_prompt + max_tokens
    if bound is not None and bound < needed:
        raise InvalidInputError(
            f"the longest prompt has {longest_prompt} tokens, and {max_tokens} may follow",
            field="engine.max_model_len",
            remedy=f"raise it to {needed}, or leave it out",
        )


def _check_engine(spec: ExperimentSpec, engines: Collection[str] | None) -> None:
    """Refuse an engine that no evaluator has: its jobs would be tried and tried again."""
    if engines is not None and spec.engine.name not in engines:
        raise InvalidInputError(
            f"there is no engine {spec.engine.name!r} on this machine",
            field="engine.name",
            remedy=f"one of {', '.join(engines)}; or submit it to a lab that has it",
        )


def _check_settled(spec: ExperimentSpec) -> None:
    """Refuse a radius that is still the name of an artifact: clients send a number."""
    if not spec.method.is_settled:
        raise InvalidInputError(
            "names an artifact that the client has not read",
            field="method.radius",
            remedy="submit with modnorm's client, or give the number",
        )


def _check_radius(spec: ExperimentSpec, model_digest: str, heldout_digest: str) -> None:
    """Refuse a radius that was chosen for another model, or on the held-out rows."""
    source = spec.method.radius_source
    if source is None:
        return
    if source.development_digest == heldout_digest:
        raise InvalidInputError(
            "the radius artifact was chosen on the rows of task.heldout",
            field="method.radius",
            remedy="name other rows in task.heldout, or choose the radius again with other rows "
            "in `modnorm tune --heldout`: what was selected for is no test",
        )
    if not source.transfer and source.model_digest != model_digest:
        raise InvalidInputError(
            f"the radius artifact is of model {(source.model_digest or '')[:12]}, "
            f"this is model {model_digest[:12]} ({spec.model.name})",
            field="method.radius",
            remedy="choose one for this model, or say `transfer: true` beside the artifact",
        )


def _overlap(choosing: LoadedRows, heldout: LoadedRows) -> int:
    """Count the held-out rows that are rows of another split too."""
    known = set(encode_rows(choosing.rows))
    return sum(row in known for row in encode_rows(heldout.rows))


def _stored_rows(rows: Sequence[Row]) -> StoredText:
    text = "\n".join(encode_rows(rows))
    return StoredText(hashlib.sha256(text.encode()).hexdigest(), text)


def _bad_profile(message: str) -> InvalidInputError:
    return InvalidInputError(
        message,
        field="method.profile",
        remedy="give a profile file, the digest of a stored profile, or leave it out",
    )
