"""`modnorm doctor`: checks of this machine and a lab, with remedies."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict
from typing import TYPE_CHECKING

import typer

from modnorm.cli.console import emit_json, stdout
from modnorm.cli.options import Json, Server, settings

if TYPE_CHECKING:
    from modnorm.client.doctor import Finding


def doctor(*, server: Server = None, as_json: Json = False) -> None:
    """Check this machine, and a lab if one is named. The exit code is 1 if anything is broken."""
    from modnorm.client.doctor import Verdict

    found = []
    for finding in _findings(server):
        found.append(finding)
        if not as_json:
            _show(finding)
    counts = Counter(finding.verdict for finding in found)
    if as_json:
        emit_json([asdict(finding) for finding in found])
    else:
        stdout().print(
            f"{counts[Verdict.BROKEN]} broken, {counts[Verdict.WARNING]} warnings", soft_wrap=True
        )
    raise typer.Exit(1 if counts[Verdict.BROKEN] else 0)


def _findings(server: str | None) -> Iterator["Finding"]:
    from modnorm.client.doctor import check_lab, check_machine

    found = settings()
    yield from check_machine(found.cache_dir)
    if server or "server" in found.model_fields_set:
        yield from check_lab(server or found.server, found.credentials)


def _show(finding: "Finding") -> None:
    console = stdout()
    line = f"{finding.verdict:7}  {finding.check}: {finding.detail}"
    console.print(line, soft_wrap=True)
    if finding.remedy:
        console.print(f"         -> {finding.remedy}", soft_wrap=True)
