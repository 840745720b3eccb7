"""Options that several commands share."""

from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeVar
from uuid import UUID

import typer
from typer.models import ArgumentInfo, OptionInfo

from modnorm.errors import (
    ForbiddenError,
    InvalidInputError,
    NotFoundError,
    UnauthenticatedError,
    UnreachableError,
)
from modnorm.files import check_writable

if TYPE_CHECKING:
    from modnorm.analysis.run import Run as FinishedRun
    from modnorm.checkpoint.reference import Checkpoint
    from modnorm.client.client import Client
    from modnorm.client.settings import ClientSettings
    from modnorm.spec import ExperimentSpec
    from modnorm.spec_checks import Splits

NumberT = TypeVar("NumberT", int, float)


def opt(
    usage: str,
    text: str,
    *,
    min: float | None = None,  # noqa: A002 - as Typer names it
    max: float | None = None,  # noqa: A002
    envvar: str | None = None,
) -> OptionInfo:
    """Return an option by its line in the help: `--row INDEX`, or `--quiet -q` of a flag."""
    *names, last = usage.split(" ")
    metavar = None if last.startswith("-") else last
    if metavar is None:
        names.append(last)
    made: OptionInfo = typer.Option(
        *names, metavar=metavar, help=text, min=min, max=max, envvar=envvar
    )
    return made


def arg(metavar: str, text: str) -> ArgumentInfo:
    """Return an argument by its name in the help."""
    made: ArgumentInfo = typer.Argument(metavar=metavar, help=text)
    return made


Out = Annotated[Path | None, opt("--out DIR", "Directory of the results [default: in runs].")]
Server = Annotated[
    str | None, opt("--server HOST:PORT", "Address of the lab [env: MODNORM_SERVER].")
]
LabServer = Annotated[
    str | None, opt("--server HOST:PORT", "Lab that runs the experiments [default: this process].")
]
Run = Annotated[str, arg("RUN", "Directory of a run, or id in a lab.")]
RunServer = Annotated[
    str | None,
    opt(
        "--server HOST:PORT",
        "Address of the lab that ran RUN [env: MODNORM_SERVER, unless RUN is a path].",
    ),
]
Population = Annotated[
    int | None, opt("--n N", "Candidates searched [default: the largest N].", min=1)
]
Size = Annotated[int | None, opt("--k K", "Experts that vote [default: the largest K].", min=1)]
BaseModel = Annotated[
    str | None,
    opt("--model NAME|DIR", "The base on this machine [default: the model in the spec of RUN]."),
]
BaseRevision = Annotated[str | None, opt("--revision COMMIT", "Revision of the base.")]
EnsembleSource = Annotated[str, arg("RUN", "Directory of a run; id in a lab; a manifest.")]
EngineName = Annotated[str, opt("--engine NAME", "auto, transformers or vllm.")]
ExperimentId = Annotated[str, arg("ID", "Id of the experiment.")]
Model = Annotated[str, opt("--model NAME|DIR", "The model.")]
Revision = Annotated[str | None, opt("--revision COMMIT", "Revision of the model.")]
Seed = Annotated[
    int | None, opt("--seed NUMBER", "Population seed instead of the one in the spec.")
]
SpecFile = Annotated[Path, arg("SPEC", "Experiment spec, YAML.")]
SpecFiles = Annotated[list[Path], arg("SPEC", "Experiment specs, YAML.")]


def settings() -> "ClientSettings":
    """Read the settings from the environment."""
    from pydantic import ValidationError

    from modnorm.client.settings import ClientSettings
    from modnorm.spec.section import plain_words

    try:
        return ClientSettings()
    except ValidationError as error:
        fault = error.errors(include_url=False)[0]
        name = "MODNORM_" + "_".join(str(step) for step in fault["loc"]).upper()
        raise InvalidInputError(plain_words(fault), field=name) from error


def read_spec(path: Path) -> "ExperimentSpec":
    """Read a spec with the task file and the radius artifact that it names, if any."""
    from modnorm.radius.artifact import carry_radius
    from modnorm.spec import located

    spec = read_unsettled_spec(path)
    if spec.method.is_resolved:
        return spec
    with located(path):
        return carry_radius(spec, settings().cache)


def read_unsettled_spec(path: Path) -> "ExperimentSpec":
    """Read a spec with its task file, but without its radius artifact."""
    from modnorm.spec import load_spec, located
    from modnorm.tasks.declared_task import carry_declaration

    with located(path):
        return carry_declaration(load_spec(path))


def seeded(spec: "ExperimentSpec", seed: int | None) -> "ExperimentSpec":
    """Return a spec with another population seed, or unchanged if the seed is None."""
    from modnorm.spec import parse_spec

    if seed is None:
        return spec
    data = spec.model_dump(mode="json")
    return parse_spec({**data, "population": {**data["population"], "seed": seed}})


def check_spec(spec: "ExperimentSpec", file: Path | None = None) -> None:
    """Refuse a spec before a lab is started, as far as this machine can check it."""
    from modnorm.engines import engine_names, is_vllm
    from modnorm.spec import located
    from modnorm.spec_checks import check_locally

    with located(file) if file is not None else nullcontext():
        check_locally(spec, folders=settings().split_folders, engines=engine_names())
        if (fields := spec.engine.vllm_fields) and not is_vllm(spec.engine.name):
            raise InvalidInputError(
                "there is no vLLM with a GPU on this machine",
                field=f"engine.{fields[0]}",
                remedy="remove it, or submit the spec to a lab that has one",
            )


def check_model(spec: "ExperimentSpec") -> None:
    """Refuse a model that is not on this machine if the Hugging Face Hub cannot give it."""
    from modnorm.checkpoint.reference import find_local_checkpoint

    if find_local_checkpoint(spec.model.name, spec.model.revision) is None:
        from modnorm.checkpoint.hub import check_repository

        check_repository(spec.model.name, spec.model.revision)


def check_prompts(spec: "ExperimentSpec", data: "Splits", checkpoint: "Checkpoint") -> None:
    """Refuse weights that do not fit their configuration, and rows that are too long."""
    from modnorm.checkpoint.prompts import PromptEncoder, check_fit
    from modnorm.checkpoint.weights import CheckpointWeights
    from modnorm.spec_checks import check_length, naming_rows

    CheckpointWeights(checkpoint)
    encoder = PromptEncoder(checkpoint)
    max_tokens = spec.task.max_tokens or data.task.max_tokens
    with naming_rows(spec, data):
        prompts = [encoder.encode(messages) for messages in data.prompts()]
        longest = check_fit(prompts, max_tokens, checkpoint)
    check_length(spec, longest, max_tokens)
    most = spec.distillation.training.max_length if spec.distillation else None
    if most is not None and data.training is not None:
        shortest = min(map(len, prompts[-len(data.training.rows) :]))
        if most < shortest + 2:  # a token of the answer, and the end
            raise InvalidInputError(
                f"the shortest training prompt has {shortest} tokens, and an answer follows",
                field="distillation.training.max_length",
                remedy="raise it, or omit it for the model's longest sequence",
            )


@contextmanager
def connect(server: str | None) -> Iterator["Client"]:
    """Open a client of the lab that the command line or the settings name."""
    from modnorm.client.client import Client

    own = settings()
    target = server or own.server
    with Client(target, timeout=own.timeout, credentials=own) as client:
        try:
            yield client
        except (UnauthenticatedError, ForbiddenError) as error:
            fault = f"the lab {target} refuses the call: {error.reason}"
            raise type(error)(fault, remedy=error.remedy) from error
        except UnreachableError as error:
            if server is not None or "server" in own.model_fields_set:
                raise
            raise UnreachableError(
                f"no lab is named, and none answers at {target}",
                remedy="name one with --server or MODNORM_SERVER; `modnorm run` needs no lab",
            ) from error


def lab_of(run: str, server: str | None) -> str | None:
    """Return the server of the lab that ran RUN; None if RUN is on this machine."""
    if server is not None or Path(run).exists():
        return server
    return settings().server if _is_id(run) else None


def _is_id(text: str) -> bool:
    try:
        return str(UUID(text)) == text
    except ValueError:
        return False


def local_run(
    run: str, server: str | None = None, *, tables: Collection[str] | None = None
) -> Path:
    """Return the directory of a run; that of an experiment is fetched into the cache.

    Of its Parquet files only `tables` are fetched, or all if None.
    """
    lab = lab_of(run, server)
    if lab is None:
        return Path(run)
    from modnorm.client.fetching import cached_run

    with connect(server) as client:
        try:
            return cached_run(client, run, tables=tables)
        except NotFoundError as error:
            raise NotFoundError(
                f"{error.message} in the lab {lab}",
                field=error.field,
                remedy="name an id that `modnorm list` shows, or the directory of a run",
            ) from error


def open_run(
    run: str, server: str | None, *, tables: Collection[str] | None = None
) -> "FinishedRun":
    """Return a finished run: a directory, or an experiment of a lab, see `local_run`."""
    from modnorm.analysis.run import load_run

    return load_run(local_run(run, server, tables=tables))


def refuse_given(options: Mapping[str, object], reason: str, remedy: str) -> None:
    """Refuse options that would have no effect."""
    for name, value in options.items():
        if value not in {None, False}:
            raise InvalidInputError(reason, field=name, remedy=remedy)


def numbers(text: str, field: str, kind: type[NumberT]) -> tuple[NumberT, ...]:
    """Read a list of distinct numbers such as `0.08,0.16`."""
    try:
        found = tuple(kind(item) for item in text.split(","))
    except ValueError as error:
        raise InvalidInputError(
            f"{text!r} is not a list of {'whole numbers' if kind is int else 'numbers'}",
            field=field,
            remedy="for instance 1,2,3",
        ) from error
    if len(set(found)) < len(found):
        raise InvalidInputError(
            f"{text!r} names a number twice", field=field, remedy="name each number once"
        )
    return found


def check_output_file(out: Path, *inputs: Path) -> None:
    """Refuse an output file that cannot be written, or that would replace a file in use."""
    from modnorm.analysis.run_files import run_that_owns

    if any(out.exists() and each.exists() and out.samefile(each) for each in inputs):
        raise InvalidInputError(
            f"{out} is an input of this command", field="out", remedy="name another file"
        )
    run = run_that_owns(out)
    if run is not None:
        raise InvalidInputError(
            f"{out} is a file of the run in {run}",
            field="out",
            remedy="name another file, or one outside the run's directory",
        )
    check_writable(out)
