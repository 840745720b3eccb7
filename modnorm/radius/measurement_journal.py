"""A file of measurements, one a line, so that none is repeated."""

import json
import os
from collections.abc import Mapping
from pathlib import Path

from pydantic import ValidationError

from modnorm.errors import ConflictError
from modnorm.files import write_fault
from modnorm.radius.artifact_schema import CandidateDisplacement

Key = tuple[str, float, int]
"""Digest of the scale map, radius, seed."""


class MeasurementJournal:
    """The measurements of one file, whose first line records their inputs.

    Raises:
        ConflictError: the file has other inputs, or is no journal.
        InvalidInputError: the file cannot be read or written.
    """

    def __init__(self, path: Path, inputs: Mapping[str, object]) -> None:
        self._path = path
        self._inputs = json.loads(json.dumps(inputs))
        self._measurements: dict[Key, CandidateDisplacement] = {}
        lines = self._whole_lines()
        if lines:
            self._check(lines[0])
            self._read(lines[1:])

    def __contains__(self, key: Key) -> bool:
        return key in self._measurements

    def __getitem__(self, key: Key) -> CandidateDisplacement:
        return self._measurements[key]

    def add(self, key: Key, measured: CandidateDisplacement) -> None:
        """Store a measurement; it is on disk when this returns.

        Raises:
            InvalidInputError: the file cannot be written.
            UnavailableError: the disk is full or broken.
        """
        scale_map, radius, _ = key
        content = measured.model_dump(mode="json")
        line: dict[str, object] = {"scale_map": scale_map, "radius": radius, **content}
        self._append([line] if self._path.exists() else [{"inputs": self._inputs}, line])
        self._measurements[key] = measured

    def _append(self, lines: list[dict[str, object]]) -> None:
        text = "".join(f"{json.dumps(line, sort_keys=True)}\n" for line in lines)
        try:
            with self._path.open("ab") as file:
                file.write(text.encode())
                file.flush()
                os.fsync(file.fileno())
        except OSError as error:
            raise write_fault(self._path, error) from error

    def _whole_lines(self) -> list[bytes]:
        """Return the complete lines; truncate the file after an interrupted write."""
        try:
            content = self._path.read_bytes()
            whole = content[: content.rfind(b"\n") + 1]
            if not whole:
                self._path.unlink()
            elif len(whole) < len(content):
                os.truncate(self._path, len(whole))
        except FileNotFoundError:
            return []
        except OSError as error:
            raise write_fault(self._path, error) from error
        return whole.splitlines()

    def _check(self, line: bytes) -> None:
        try:
            stored = json.loads(line)["inputs"]
            names = sorted(stored.keys() | self._inputs.keys())
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise self._conflict("it is no journal of measurements") from error
        for name in names:
            if stored.get(name) != self._inputs.get(name):
                old, new = _brief(stored.get(name)), _brief(self._inputs.get(name))
                raise self._conflict(f"{name} is {old} there, {new} here")

    def _read(self, lines: list[bytes]) -> None:
        try:
            for line in lines:
                content = json.loads(line)
                scale_map, radius = content.pop("scale_map"), content.pop("radius")
                measured = CandidateDisplacement.model_validate(content)
                self._measurements[scale_map, radius, measured.seed] = measured
        except (ValueError, KeyError, TypeError, AttributeError, ValidationError) as error:
            raise self._conflict(f"a line of it is damaged: {error}") from error

    def _conflict(self, reason: str) -> ConflictError:
        return ConflictError(
            f"the measurements in {self._path} cannot be continued here: {reason}",
            field="out",
            remedy="name another directory with --out, or continue on the original machine",
        )


def _brief(value: object) -> str:
    text = json.dumps(value, sort_keys=True)
    return text if len(text) < 80 else f"{text[:76]}..."
