"""Checks of a spec against its method, noise, engine, rows, model and files.

They load no model and do not need torch. To admit an experiment, the aggregator makes these checks
and others that need a tokenizer, weights or a sandbox. A command that starts a lab makes them
first, so that it refuses a spec within a second.
"""

import json
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from modnorm.baselines.generator_file import GeneratorFile, read_generator, unusable_generator
from modnorm.calibration.profile import MAX_PROFILE_BYTES, Profile, require_every_layer
from modnorm.checkpoint.checkpoint_files import check_attention, positive
from modnorm.checkpoint.families import decoder_config, physical_layout
from modnorm.checkpoint.reference import (
    Checkpoint,
    check_offline,
    check_tokenizer_files,
    find_local_checkpoint,
)
from modnorm.errors import IncompatibleError, InvalidInputError
from modnorm.files import canonical_json, read_fault, read_text
from modnorm.hints import one_of
from modnorm.noise import check_scheme
from modnorm.perturbation.methods import (
    check_rank,
    needs_profile,
    refuse_unused_fields,
    require_usable,
)
from modnorm.spec import DataSpec, ExperimentSpec
from modnorm.tasks import Message, Row, Task, get_stored_task
from modnorm.tasks.columns import prompt_digests, rows_digest
from modnorm.tasks.row_files import check_dataset, resolve_file
from modnorm.tasks.row_loading import LoadedRows, is_dataset, load_data, needs_hub
from modnorm.tasks.task_errors import metric, render_prompts, shared_prompts

_DIGEST = re.compile("[0-9a-f]{16}|[0-9a-f]{64}")
_PROMPT = re.compile(r"prompts\.([0-9]+)")
"""Field of an error about one of several prompts."""
MAX_GENERATOR_BYTES = 256 * 2**20


@dataclass(frozen=True, slots=True)
class Splits:
    """The task of a spec and its rows."""

    task: Task
    selection: LoadedRows
    heldout: LoadedRows
    development: LoadedRows | None
    training: LoadedRows | None = None
    """Rows that the experts of a distillation answer."""

    @property
    def by_name(self) -> dict[str, LoadedRows]:
        """The rows of each split that the spec has, by name, in the order of `rows_of`."""
        splits = {
            "selection": self.selection,
            "heldout": self.heldout,
            "development": self.development,
            "training": self.training,
        }
        return {name: rows for name, rows in splits.items() if rows is not None}

    def prompts(self) -> list[Sequence[Message]]:
        """Return the messages of the rows of all splits, one split after another."""
        return [
            prompt
            for name, loaded in self.by_name.items()
            for prompt in render_prompts(self.task, loaded.rows, f"{name} row")
        ]

    def heldout_of(self, prompts: Sequence[Sequence[Message]]) -> Sequence[Sequence[Message]]:
        """Return the prompts of the held-out rows among those of `prompts`."""
        start = len(self.selection.rows)
        return prompts[start : start + len(self.heldout.rows)]


def check_engine(spec: ExperimentSpec, engines: Collection[str] | None) -> None:
    """Refuse an engine that no evaluator has, since its jobs would be retried for ever.

    Any engine is accepted if the engines of the evaluators are unknown (None).
    """
    if engines is not None and spec.engine.name not in engines:
        raise InvalidInputError(
            f"there is no engine {spec.engine.name!r} on this machine",
            field="engine.name",
            remedy=f"{one_of(spec.engine.name, engines)}; or submit it to a lab that has it",
        )


def check_resolved(spec: ExperimentSpec) -> None:
    """Refuse a radius that still names an artifact; clients must send a number."""
    if not spec.method.is_resolved:
        raise InvalidInputError(
            "names an artifact that the client has not read",
            field="method.radius",
            remedy="submit with modnorm's client, or set the number",
        )


def check_names(spec: ExperimentSpec) -> None:
    """Refuse an unknown method or noise scheme, unused fields and an impossible rank."""
    refuse_unused_fields(spec.method)
    check_scheme(spec.population.noise)
    check_rank(spec.method, spec.population.noise)


def check_splits_differ(spec: ExperimentSpec) -> None:
    """Refuse a spec that uses the same rows for selection and for evaluation."""
    task = spec.task
    if task.selection == task.heldout:
        raise InvalidInputError(
            "names the same rows as task.selection",
            field="task.heldout",
            remedy="name other rows, or another offset: selection rows are no test",
        )
    field, chosen_on = development_of(spec)
    if chosen_on is not None and chosen_on in {task.selection, task.heldout}:
        raise InvalidInputError("names the same rows as the task does", field=field)


def development_of(spec: ExperimentSpec) -> tuple[str, DataSpec | None]:
    """Return field and source of the development rows of a spec; None without any."""
    if spec.distillation is not None:
        return "distillation.development", spec.distillation.development
    return "iterative.development", spec.iterative.development if spec.iterative else None


def rows_of(spec: ExperimentSpec) -> dict[str, DataSpec]:
    """Return the rows that a spec names, by their field."""
    field, development = development_of(spec)
    named = {
        "task.selection": spec.task.selection,
        "task.heldout": spec.task.heldout,
        field: development,
        "distillation.rows": spec.distillation.rows if spec.distillation else None,
    }
    return {field: rows for field, rows in named.items() if rows is not None}


def check_no_row_is_shared(task: Task, splits: Mapping[str, LoadedRows]) -> None:
    """Refuse a distillation whose training or development rows share a prompt with other rows."""
    loaded = list(splits.items())
    for index, (field, rows) in enumerate(loaded):
        for other_field, other in loaded[:index] if field.startswith("distillation.") else ():
            if shared := shared_prompts(task, rows.rows, other.rows):
                here, there = shared[0]
                raise InvalidInputError(
                    f"shares {len(shared)} of {len(rows.rows)} prompts with {other_field}; the "
                    f"first is {rows.places[here]}, which is {other.places[there]} there",
                    field=field,
                    remedy="name rows that no other split contains: what is trained or chosen on "
                    "cannot be tested on",
                )


def check_metric(task: Task, heldout: LoadedRows) -> None:
    """Refuse a task whose metric fails if all answers are wrong, or all are right."""
    for right in (False, True):
        metric(task, heldout.rows, [right] * len(heldout.rows), InvalidInputError)


def task_of(spec: ExperimentSpec) -> Task:
    """Return the task of a spec without reading a task file."""
    task = spec.task
    return get_stored_task(task.name, scorer=task.scorer, declaration=task.declaration)


def load_splits(
    spec: ExperimentSpec, *, roots: Sequence[Path] | None, folders: Sequence[Path]
) -> Splits:
    check_splits_differ(spec)
    task = task_of(spec)
    loaded = {
        field: load_data(task, rows, field=field, roots=roots, folders=folders)
        for field, rows in rows_of(spec).items()
    }
    check_no_row_is_shared(task, loaded)
    check_metric(task, loaded["task.heldout"])
    return Splits(
        task=task,
        selection=loaded["task.selection"],
        heldout=loaded["task.heldout"],
        development=loaded.get(development_of(spec)[0]),
        training=loaded.get("distillation.rows"),
    )


def check_radius_is_tested_elsewhere(
    spec: ExperimentSpec, heldout: Sequence[Row], prompts: Sequence[Sequence[Message]]
) -> None:
    """Refuse a radius that was chosen on some of the held-out rows."""
    source = spec.method.radius_source
    if source is None:
        return
    chosen_on = set(source.development_prompts)
    shared = sum(digest in chosen_on for digest in prompt_digests(prompts))
    if shared or source.development_digest == rows_digest(heldout):
        raise InvalidInputError(
            f"the radius artifact was chosen on {shared or 'all'} of the {len(heldout)} rows of "
            "task.heldout",
            field="method.radius",
            remedy="name other rows in task.heldout, or choose the radius again with other rows "
            "in `modnorm tune --heldout`: rows that chose the radius are no test",
        )


def check_calibration(spec: ExperimentSpec, selection_rows: int, num_layers: int) -> None:
    """Refuse a calibration that would leave a layer without an estimate."""
    examples = min(spec.calibration.examples, selection_rows)
    require_every_layer(examples, spec.calibration.layers_per_example, num_layers)


def read_profile(name: str, roots: Sequence[Path] | None) -> str:
    """Return the canonical JSON of a profile file, without validating its content."""
    path = resolve_file(name, "method.profile", roots)
    try:
        content = json.loads(read_text(path, most=MAX_PROFILE_BYTES))
        return canonical_json(content)
    except (OSError, ValueError, RecursionError) as error:
        raise InvalidInputError(
            f"cannot read {name}: {read_fault(error)}",
            field="method.profile",
            remedy="use a profile file or the digest of a stored profile, or remove the field",
        ) from error


def find_generator(name: str, roots: Sequence[Path] | None) -> GeneratorFile:
    path = resolve_file(name, "iterative.generator", roots)
    try:
        return read_generator(read_text(path, most=MAX_GENERATOR_BYTES))
    except (OSError, ValueError) as error:
        raise unusable_generator(f"cannot read {path.name}: {read_fault(error)}") from error


def names_stored_profile(profile: str) -> bool:
    """Return whether a spec names a stored profile instead of a file."""
    return _DIGEST.fullmatch(profile) is not None


def check_locally(
    spec: ExperimentSpec, *, folders: Sequence[Path], engines: Collection[str]
) -> None:
    """Make all checks that need no download and no model."""
    check_resolved(spec)
    check_engine(spec, engines)
    check_splits_differ(spec)
    task, selection = task_of(spec), check_search_locally(spec, folders=folders)
    loaded = {} if selection is None else {"task.selection": selection}
    for field, named in rows_of(spec).items():
        if field != "task.selection" and (rows := _local_rows(task, named, field, folders)):
            loaded[field] = rows
    if heldout := loaded.get("task.heldout"):
        prompts = render_prompts(task, heldout.rows, "heldout row")
        check_radius_is_tested_elsewhere(spec, heldout.rows, prompts)
        check_metric(task, heldout)
    check_no_row_is_shared(task, loaded)


def remarks_on_rows(spec: ExperimentSpec, data: Splits) -> list[str]:
    """Return remarks on rows that occur twice, and on a calibration with few rows."""
    heldout = data.heldout.rows
    splits = {
        name: loaded.rows
        for name, loaded in data.by_name.items()
        if name in {"selection", "development"}
    }
    remarks = [
        f"{count} of {len(heldout)} held-out rows have the prompts of {name} rows"
        for name, rows in splits.items()
        if (count := len(shared_prompts(data.task, heldout, rows)))
    ]
    for name, rows in (*splits.items(), ("held-out", heldout)):
        firsts = {there for _, there in shared_prompts(data.task, rows, rows)}
        if count := len(rows) - len(firsts):
            remarks.append(f"{count} of {len(rows)} {name} rows repeat the prompt of another")
    asked, given = spec.calibration.examples, len(data.selection.rows)
    if needs_profile(spec.method.name) and spec.method.profile is None and given < asked:
        remarks.append(f"calibration.examples is {asked}: only {given} selection rows exist")
    return remarks


def check_search_locally(spec: ExperimentSpec, *, folders: Sequence[Path]) -> LoadedRows | None:
    """Check method, model and selection rows of a spec, whose radius may be an artifact.

    Return the selection rows; None if they are on the hub.
    """
    check_names(spec)
    selection = _local_rows(task_of(spec), spec.task.selection, "task.selection", folders)
    checkpoint = find_local_checkpoint(spec.model.name, spec.model.revision)
    if checkpoint is None:
        check_offline(spec.model.name, spec.model.revision)
    else:
        _check_local_model(spec, checkpoint, selection)
    if spec.method.profile is not None and not names_stored_profile(spec.method.profile):
        profile = Profile.from_json(read_profile(spec.method.profile, None))
        if checkpoint is not None:
            profile.check_matches(checkpoint)
    return selection


def _local_rows(
    task: Task, rows: DataSpec, field: str, folders: Sequence[Path]
) -> LoadedRows | None:
    """Load rows from this machine; return None if they are on the hub."""
    if is_dataset(rows.source):
        check_dataset(rows, field=field)
        return None
    if needs_hub(rows.source, folders, field=field):
        return None
    return load_data(task, rows, field=field, folders=folders)


def _check_local_model(
    spec: ExperimentSpec, checkpoint: Checkpoint, selection: LoadedRows | None
) -> None:
    config, method = checkpoint.config, spec.method
    check_tokenizer_files(checkpoint)
    if spec.engine.name == "transformers" or find_spec("vllm") is None:
        try:
            check_attention(decoder_config(config))
        except IncompatibleError as error:
            raise InvalidInputError(
                error.message, field=error.field, remedy=error.remedy
            ) from error
    require_usable(method, config)
    needed = needs_profile(method.name) and method.profile is None
    if needed and selection is not None:
        check_calibration(spec, len(selection.rows), positive(config, "num_hidden_layers"))
    if spec.iterative and spec.iterative.generator:
        tensors = [(tensor.name, tensor.shape) for tensor in physical_layout(config)]
        find_generator(spec.iterative.generator, None).check_model(tensors)


@contextmanager
def naming_rows(spec: ExperimentSpec, data: Splits) -> Iterator[None]:
    """Replace the prompt's index in an error by the source and the place of its row."""
    try:
        yield
    except InvalidInputError as error:
        index = prompt_at_fault(error)
        if index is None:
            raise
        named = [
            (field, f"{source.source}, {place}")
            for (field, source), loaded in zip(
                rows_of(spec).items(), data.by_name.values(), strict=True
            )
            for place in loaded.places
        ]
        field, row = named[index]
        raise InvalidInputError(
            f"{row}: {error.message}", field=field, remedy=error.remedy
        ) from error


def prompt_at_fault(error: InvalidInputError) -> int | None:
    """Return the index of the prompt that an error is about, if any."""
    match = _PROMPT.fullmatch(error.field or "")
    return int(match[1]) if match else None


def check_length(spec: ExperimentSpec, longest_prompt: int, max_tokens: int) -> None:
    """Refuse an engine whose sequences are shorter than those of the task."""
    bound, needed = spec.engine.max_model_len, longest_prompt + max_tokens
    if bound is not None and bound < needed:
        raise InvalidInputError(
            f"the longest prompt has {longest_prompt} tokens, and {max_tokens} may follow",
            field="engine.max_model_len",
            remedy=f"raise it to {needed}, or omit it",
        )
