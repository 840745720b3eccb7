"""A console that prints texts as they are."""

from typing import TextIO

from rich.console import Console
from rich.text import Text
from typing_extensions import override

from modnorm.cli.escaping import visible


class PlainConsole(Console):
    """No markup, since a name may look like it, and no control characters."""

    def __init__(self, file: TextIO | None, *, width: int | None) -> None:
        super().__init__(file=file, width=width, highlight=False, markup=False, emoji=False)

    @override
    def render_str(self, text: str, **options: object) -> Text:
        return super().render_str(visible(text), **options)  # type: ignore[arg-type]
