"""Options that several commands share."""

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeVar

import typer

from modnorm.errors import (
    InvalidInputError,
    NotFoundError,
    PreconditionError,
    UnreachableError,
)

if TYPE_CHECKING:
    from modnorm.client import ModnormClient
    from modnorm.client.settings import ClientSettings
    from modnorm.spec import ExperimentSpec
    from modnorm.v1 import experiment_pb2 as experiments

NumberT = TypeVar("NumberT", int, float)

Json = Annotated[bool, typer.Option("--json", help="Write JSON to stdout.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Show no progress.")]
Server = Annotated[
    str | None,
    typer.Option("--server", metavar="HOST:PORT", help="Aggregator [env: MODNORM_SERVER]."),
]
Run = Annotated[str, typer.Argument(metavar="RUN", help="Directory of a run; id in a lab.")]
RunServer = Annotated[
    str | None,
    typer.Option(
        "--server",
        metavar="HOST:PORT",
        help="Aggregator of the lab that ran RUN [env: MODNORM_SERVER, unless RUN is a path].",
    ),
]
ExperimentId = Annotated[str, typer.Argument(metavar="ID", help="Id of the experiment.")]
Seed = Annotated[
    int | None, typer.Option("--seed", help="Population seed instead of the one in the spec.")
]
SpecFile = Annotated[Path, typer.Argument(metavar="SPEC", help="Experiment spec, YAML.")]


def settings() -> "ClientSettings":
    """Read the settings.

    Raises:
        InvalidInputError: a variable of the environment does not make sense.
    """
    from pydantic import ValidationError

    from modnorm.client.settings import ClientSettings
    from modnorm.spec.faults import plain_words

    try:
        return ClientSettings()
    except ValidationError as error:
        fault = error.errors(include_url=False)[0]
        name = "MODNORM_" + "_".join(str(step) for step in fault["loc"]).upper()
        raise InvalidInputError(plain_words(fault), field=name) from error


def read_spec(path: Path) -> "ExperimentSpec":
    """Read a spec, and the task file and the radius artifact that it may name.

    Labs get the text of the one and the number in the other.

    Raises:
        InvalidInputError: one of them is missing or does not hold together, or they do not fit.
    """
    from modnorm.client.radius import carry_radius
    from modnorm.spec import located

    found = settings()
    spec = read_unsettled_spec(path)
    with located(path):
        return carry_radius(spec, found.cache_dir, folders=found.split_folders)


def read_unsettled_spec(path: Path) -> "ExperimentSpec":
    """Read a spec, and the task file that it may name, but no radius artifact.

    For commands that choose the radius: the artifact that the spec names may be theirs to make.

    Raises:
        InvalidInputError: one of them is missing, is not YAML, or does not hold together.
    """
    from modnorm.spec import load_spec, located
    from modnorm.tasks.declared_task import carry_declaration

    with located(path):
        return carry_declaration(load_spec(path))


def seeded(spec: "ExperimentSpec", seed: int | None) -> "ExperimentSpec":
    """Return a spec under another population seed; as it is where none is given.

    Raises:
        InvalidInputError: the seed is out of bounds.
    """
    from modnorm.spec import parse_spec

    if seed is None:
        return spec
    data = spec.model_dump(mode="json")
    return parse_spec({**data, "population": {**data["population"], "seed": seed}})


def check_here(spec: "ExperimentSpec", file: Path | None = None) -> None:
    """Refuse a spec before a lab is started, as far as this machine can check it.

    Args:
        spec: The spec.
        file: The file that it was read from; errors then name the line.

    Raises:
        InvalidInputError: names the field at fault.
        PreconditionError: rows of the spec are not public and not on this machine.
    """
    from modnorm.admission import check_here
    from modnorm.engines import engine_names
    from modnorm.spec import located

    with located(file) if file is not None else nullcontext():
        check_here(spec, folders=settings().split_folders, engines=engine_names())


@contextmanager
def connect(server: str | None) -> Iterator["ModnormClient"]:
    """Open a client of the lab that the command line or the settings name.

    Raises:
        PreconditionError: neither names a lab, and none answers at the default address.
    """
    from modnorm.client import ModnormClient

    own = settings()
    target = server or own.server
    with ModnormClient(target, timeout=own.timeout, credentials=own.credentials) as client:
        try:
            yield client
        except UnreachableError as error:
            if server is not None or "server" in own.model_fields_set:
                raise
            raise PreconditionError(
                f"no lab is named, and none answers at {target}",
                remedy="name one with --server or MODNORM_SERVER; `modnorm run` needs no lab",
            ) from error


def lab_of(run: str, server: str | None) -> str | None:
    """Return the server of the lab that ran RUN; None where RUN is something on this machine.

    Args:
        run: Directory or id.
        server: What was named on the command line. Without it the settings count, but not their
            default: what is neither a directory nor in a lab that somebody named is a mistake.
    """
    if server is not None or Path(run).exists():
        return server
    found = settings()
    return found.server if "server" in found.model_fields_set else None


@contextmanager
def in_lab(
    experiment_id: str, server: str
) -> Iterator[tuple["ModnormClient", "experiments.Experiment"]]:
    """Open a connection to the lab that ran an experiment, and find the experiment.

    Raises:
        NotFoundError: it has no such experiment.
    """
    with connect(server) as client:
        try:
            experiment = client.get(experiment_id)
        except NotFoundError as error:
            raise NotFoundError(
                f"{error.message}; the lab {server} was asked",
                field=error.field,
                remedy="name an id that `modnorm list` shows, or the directory of a run",
            ) from error
        yield client, experiment


def numbers(text: str, field: str, kind: type[NumberT]) -> tuple[NumberT, ...]:
    """Read a list such as `0.08,0.16`, in which each number stands once.

    Args:
        text: Numbers with commas between them.
        field: Name of the option, for the error.
        kind: `int` or `float`.

    Raises:
        InvalidInputError: an item is not a number, stands there twice, or there is none.
    """
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
