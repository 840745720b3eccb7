"""The help of one command: arguments and values by the names of the documentation."""

import re
from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING

from typer.core import TyperCommand
from typing_extensions import override

if TYPE_CHECKING:
    from typer._click import Context, HelpFormatter

_TYPE = re.compile(r" <([^>]*)>$")
_VALUES: Mapping[str, str] = MappingProxyType(
    {"int": "NUMBER", "int range": "NUMBER", "float": "NUMBER", "float range": "NUMBER"}
    | {"str": "TEXT", "path": "PATH"}
)
_LIST = re.compile(r"^list\[(.*)\]$")


class HelpedCommand(TyperCommand):
    """A command whose help has no types of Python: `RUN`, `--seed NUMBER`."""

    @override
    def collect_usage_pieces(self, ctx: "Context") -> list[str]:
        return [_usage(piece) for piece in super().collect_usage_pieces(ctx)]

    @override
    def format_options(self, ctx: "Context", formatter: "HelpFormatter") -> None:
        for heading, kind in (("Arguments", "argument"), ("Options", "option")):
            if records := list(self._records(ctx, kind)):
                with formatter.section(heading):
                    formatter.write_dl(records)

    def _records(self, ctx: "Context", kind: str) -> Iterator[tuple[str, str]]:
        """Yield the name and the help of each argument or option."""
        for parameter in self.get_params(ctx):
            record = parameter.get_help_record(ctx)
            if record is None or parameter.param_type_name != kind:
                continue
            name, text = record
            if kind == "argument":
                yield _TYPE.sub("", name), text.removesuffix("  [required]")
            else:
                yield _TYPE.sub(_value, name), text


def _usage(piece: str) -> str:
    """Return an argument as `RUN`, `RUN...` or `[FILE]`."""
    inner = piece.removesuffix("...").strip("{}")
    if piece.startswith("{"):
        return inner
    return f"[{inner.strip('[]')}]" if piece.startswith("[[") or piece.endswith("...") else piece


def _value(found: re.Match[str]) -> str:
    kind = _LIST.sub(r"\1", found[1])
    return f" {_VALUES.get(kind, kind)}"
