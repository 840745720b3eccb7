"""`modnorm submit`, `watch`, `show`, `list`, `cancel`, `token` and `doctor`: a lab."""

import json
from collections import Counter
from dataclasses import asdict
from datetime import UTC, datetime, timedelta
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from modnorm.cli.console import (
    as_dict,
    echo,
    echo_table,
    emit,
    emit_json,
    interruptible,
    on_one_line,
    output,
    say,
    tell,
)
from modnorm.cli.options import (
    ExperimentId,
    Seed,
    Server,
    SpecFile,
    arg,
    connect,
    lab_of,
    opt,
    read_spec,
    seeded,
    settings,
)
from modnorm.errors import InvalidInputError
from modnorm.wire.tokens import DEFAULT_TENANT, Role

if TYPE_CHECKING:
    from modnorm.client.client import Client
    from modnorm.v1 import experiment_pb2 as experiments
    from modnorm.wire.tokens import AcceptedToken

Name = Annotated[str, arg("NAME", "Public name of the token.")]
TokenFile = Annotated[
    Path,
    opt(
        "--file FILE",
        "File of accepted tokens, which services read again when it changes.",
        envvar="MODNORM_ACCEPTED_TOKENS",
    ),
]


def submit(
    spec_file: SpecFile,
    *,
    server: Server = None,
    request_id: Annotated[
        str | None, opt("--request-id NAME", "Name of the submission; the same finds it again.")
    ] = None,
    again: Annotated[bool, opt("--again", "Start a new experiment of this spec.")] = False,
    seed: Seed = None,
    wait: Annotated[bool, opt("--wait", "Follow the experiment to its end.")] = False,
) -> None:
    """Submit an experiment to a lab and print its id.

    The same spec again is the same experiment, unless it failed or was cancelled, or --again or
    --request-id is used. It is refused if its files changed.
    """
    if again and request_id is not None:
        raise InvalidInputError(
            "a request id names one experiment, and --again starts a new one",
            field="again",
            remedy="use one of the two",
        )
    spec = seeded(read_spec(spec_file), seed)
    from modnorm.cli.run import follow_to_end, show_remarks
    from modnorm.client.connection import create_experiment
    from modnorm.client.resumption import resume_or_submit_shared
    from modnorm.spec.reading import located
    from modnorm.v1 import experiment_pb2 as experiments
    from modnorm.wire.conversions import state_name

    with connect(server) as client:
        with located(spec_file):
            if again or request_id is not None:
                experiment = create_experiment(client, spec, request_id)
            else:
                experiment = resume_or_submit_shared(client, spec, "submit")
        show_remarks(client, experiment.id)
        if wait:
            with interruptible(f"experiment {experiment.id} continues in the lab"):
                experiment = follow_to_end(client, experiment, title=spec_file.stem)
        if wait or output.as_json:
            _show_experiment(client, experiment)
            return
    echo(experiment.id)
    if experiment.state != experiments.EXPERIMENT_STATE_PENDING:
        tell(f"it is {state_name(experiment.state)}")


def watch(experiment_id: ExperimentId, *, server: Server = None) -> None:
    """Follow an experiment to its end. With --json: one event a line."""
    asked = _id(experiment_id)
    from modnorm.cli.run import check_end, follow_to_end
    from modnorm.client.connection import get_experiment, watch_messages

    with connect(server) as client, interruptible("the experiment continues in the lab"):
        if output.as_json:
            for event in watch_messages(client, asked):
                typer.echo(json.dumps(as_dict(event)))
            check_end(get_experiment(client, asked))
            return
        ended = follow_to_end(client, get_experiment(client, asked))
        _show_experiment(client, ended)


def show(
    run: Annotated[str, arg("RUN", "Directory of runs, or id of an experiment.")],
    *,
    server: Server = None,
    out: Annotated[Path | None, opt("--out DIR", "Directory for results and report.")] = None,
) -> None:
    """Show a run directory or an experiment of a lab.

    Each line is a model or a vote, its metric on the held-out rows and the 95 % Wilson interval
    over these rows. `rank 1 by selection` is the candidate with the highest selection reward.
    `N=12 K=5` is the vote of the best 5 of the first 12 candidates.

    With --out, write the files of a lab's experiment that `run` writes.
    """
    if out is None and lab_of(run, server) is None:
        from modnorm.cli.results import show_directory

        show_directory(Path(run))
        return
    from modnorm.analysis.run_files import REPORT
    from modnorm.client.connection import get_experiment
    from modnorm.client.fetching import save_run_to

    experiment_id = _id(run)
    with connect(server) as client:
        experiment = get_experiment(client, experiment_id)
        if out is not None:
            save_run_to(client, experiment_id, out)
        _show_experiment(client, experiment, place=out)
    if out is not None and (out / REPORT).is_file():
        say(f"report: {out / REPORT}")


def list_experiments(*, server: Server = None) -> None:
    """List the experiments of a lab, newest first."""
    from modnorm.client import connection

    with connect(server) as client:
        found = list(connection.list_experiments(client))
    if emit_json([as_dict(experiment) for experiment in found]):
        return
    from modnorm.wire.conversions import state_name
    from modnorm.wire.run_messages import with_remedy

    headings = ("id", "name", "state", "jobs", "best", "top-K", "created", "note")
    rows = []
    for each in found:
        progress = each.progress
        note = with_remedy(each.error, each.remedy) if each.error else ""
        if each.waits_for and not note:
            note = f"waiting: {each.waits_for}"
        rows.append(
            (
                each.id,
                on_one_line(each.spec.name) or "-",
                state_name(each.state),
                f"{progress.jobs_done}/{progress.jobs_total}",
                f"{progress.best_reward:.4f}" if progress.HasField("best_reward") else "-",
                f"{progress.threshold_reward:.4f}"
                if progress.HasField("threshold_reward")
                else "-",
                each.create_time.ToDatetime().isoformat(sep=" ", timespec="seconds"),
                on_one_line(note),
            )
        )
    shown = len(headings) if any(row[-1] for row in rows) else len(headings) - 1
    echo_table(headings[:shown], (row[:shown] for row in rows), {"note"})


def cancel(experiment_id: ExperimentId, *, server: Server = None) -> None:
    """Ask an experiment to stop."""
    asked = _id(experiment_id)
    from modnorm.client.connection import cancel_experiment

    with connect(server) as client:
        experiment = cancel_experiment(client, asked)
        _show_experiment(client, experiment)


def _show_experiment(
    client: "Client", experiment: "experiments.Experiment", *, place: Path | None = None
) -> None:
    """Print an experiment: how far it is, or its results, which may be in a directory here."""
    if emit_json(as_dict(experiment)):
        return
    from modnorm.cli.progress import rewards
    from modnorm.v1 import experiment_pb2 as experiments
    from modnorm.wire.conversions import state_name
    from modnorm.wire.run_messages import with_remedy

    progress = experiment.progress
    echo(f"{experiment.id}  {state_name(experiment.state)}")
    if experiment.error:
        echo(with_remedy(experiment.error, experiment.remedy))
    if progress.updates_total:
        echo(f"{progress.updates_done} of {progress.updates_total} updates are made")
    if experiment.state != experiments.EXPERIMENT_STATE_SUCCEEDED:
        base = experiment.base
        parts = [
            f"jobs {progress.jobs_done}/{progress.jobs_total}",
            f"failed {progress.jobs_failed}",
            f"running {progress.jobs_running}",
        ]
        if experiment.state == experiments.EXPERIMENT_STATE_CALIBRATING:
            parts = [f"prompts calibrated {progress.examples_done}/{progress.examples_total}"]
        parts += rewards(
            progress,
            base.selection_reward if base.HasField("selection_reward") else None,
            max(experiment.spec.population.ensemble_sizes, default=1),
        )
        if experiment.waits_for:
            parts.append(f"waiting: {experiment.waits_for}")
        echo(", ".join(parts))
        return
    from modnorm.cli.results import print_run
    from modnorm.client.fetching import cached_run

    print_run(place or cached_run(client, experiment.id, tables=()))


def _id(text: str) -> str:
    """Return the id of an experiment; a path is a mistake."""
    path = Path(text)
    if "/" in text or path.exists():
        there = "does not exist"
        if path.exists():
            there = "is a directory" if path.is_dir() else "is a file"
        raise InvalidInputError(
            f"{text} {there}",
            field="id",
            remedy="name an id that `modnorm list` shows, or for `modnorm show` a run directory",
        )
    return text


def create_token(
    name: Name,
    *,
    file: TokenFile,
    roles: Annotated[
        list[Role], opt(f"--role {'|'.join(Role)}", "Role of the token; repeatable.")
    ],
    tenant: Annotated[
        str, opt("--tenant NAME", "Tenant whose experiments it may use.")
    ] = DEFAULT_TENANT,
    days: Annotated[
        float | None, opt("--days DAYS", "Days until it expires [default: never].")
    ] = None,
) -> None:
    """Make a token and print it once; the file keeps only its hash."""
    from modnorm.wire.tokens import add_token, make_token

    expires = None
    if days is not None:
        if not 0 < days <= 36_500:
            raise InvalidInputError("must be greater than 0 and at most 36500", field="days")
        expires = datetime.now(UTC).replace(microsecond=0) + timedelta(days=days)
    text, kept = make_token(name, roles, tenant=tenant, expires=expires)
    add_token(file, kept)
    if emit_json({"token": text, **_token_entry(kept)}):
        return
    echo(text)
    say(f"kept as a hash in {file}; the token is not shown again")


def list_tokens(*, file: TokenFile) -> None:
    """List the tokens of a file."""
    from modnorm.wire.tokens import read_tokens

    found = read_tokens(file).tokens
    if emit_json([_token_entry(token) for token in found]):
        return
    headings = ("name", "tenant", "roles", "created", "expires", "state")
    rows = (
        (
            token.name,
            token.tenant,
            ",".join(token.roles),
            f"{token.created:%Y-%m-%d %H:%M}",
            "never" if token.expires is None else f"{token.expires:%Y-%m-%d %H:%M}",
            _token_state(token),
        )
        for token in found
    )
    echo_table(headings, rows)


def revoke_token(name: Name, *, file: TokenFile) -> None:
    """Revoke a token; services refuse it within a second."""
    from modnorm.wire import tokens

    tokens.revoke_token(file, name)
    if emit_json({"name": name, "state": "revoked"}):
        return
    say(f"revoked: {name}")


def _token_entry(token: "AcceptedToken") -> dict[str, object]:
    shown = token.model_dump(mode="json", exclude={"sha256"}, exclude_none=True)
    return {**shown, "state": _token_state(token)}


def _token_state(token: "AcceptedToken") -> str:
    if token.revoked:
        return "revoked"
    expired = token.expires is not None and token.expires <= datetime.now(UTC)
    return "expired" if expired else "accepted"


TOKEN_COMMANDS = {"create": create_token, "list": list_tokens, "revoke": revoke_token}


def doctor(*, server: Server = None) -> None:
    """Check this machine, and a lab if one is named. The exit code is 1 if anything is broken."""
    from modnorm.client.doctor import Verdict, check_lab, check_machine

    own, found = settings(), []
    named = server or (own.server if "server" in own.model_fields_set else None)
    of_lab = check_lab(named, own) if named else ()
    for finding in chain(check_machine(own.cache_dir), of_lab):
        found.append(finding)
        echo(f"{finding.verdict:7}  {finding.check}: {finding.detail}")
        if finding.remedy:
            echo(f"         -> {finding.remedy}")
    counts = Counter(finding.verdict for finding in found)
    emit(
        [asdict(finding) for finding in found],
        f"{counts[Verdict.BROKEN]} broken, {counts[Verdict.WARNING]} warnings",
    )
    raise typer.Exit(1 if counts[Verdict.BROKEN] else 0)
