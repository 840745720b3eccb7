"""Results in a file, so that several commands can share one search."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

Figures = dict[str, Any]
"""Measurements of one contender as JSON."""


def show(results: object, out: Path | None) -> None:
    """Print results as JSON, and write them to a file if one is given."""
    text = json.dumps(results, indent=2)
    print(text)
    if out:
        out.write_text(text + "\n")


class ResultFile:
    """A file of results, rewritten with each new one.

    Raises:
        SystemExit: the file's results have other settings.
    """

    def __init__(self, path: Path, settings: Mapping[str, object]) -> None:
        self._path = path
        self.content: Figures = {"settings": dict(settings), "contenders": {}}
        if path.exists():
            self.content = json.loads(path.read_text())
            if self.content["settings"] != dict(settings):
                raise SystemExit(f"{path} has results of other settings: name another file")

    @property
    def contenders(self) -> dict[str, Figures]:
        """Measurements by contender."""
        contenders: dict[str, Figures] = self.content["contenders"]
        return contenders

    def add(self, name: str, figures: Mapping[str, object]) -> None:
        """Add the measurements of a contender."""
        self.contenders[name] = dict(figures)
        self._write()

    def found_on(self, floor: Mapping[str, object]) -> None:
        """Record the machine of the results.

        Raises:
            SystemExit: the file's results are of another machine.
        """
        known = self.content.setdefault("floor", dict(floor))
        if any(known.get(name) != floor[name] for name in ("device", "processor")):
            raise SystemExit(f"{self._path} has results of another machine: name another file")
        self._write()

    def _write(self) -> None:
        self._path.parent.mkdir(parents=True, exist_ok=True)
        self._path.write_text(json.dumps(self.content, indent=2) + "\n")
