"""Measurements on disk, one a line, so that what was measured is never measured again."""

import json
import os
from collections.abc import Mapping
from pathlib import Path

from pydantic import ValidationError

from modnorm.errors import ConflictError, InvalidInputError
from modnorm.radius.schema import Candidate

Key = tuple[str, float, int]
"""Digest of the scale map, radius, seed."""


class Journal:
    """The measurements of one file; its first line says what they were made from.

    Args:
        path: The file; made with the first measurement.
        inputs: All that a measurement depends on besides its key, as JSON data.

    Raises:
        ConflictError: the file is of other inputs, or is no journal.
        InvalidInputError: it cannot be read or written.
    """

    def __init__(self, path: Path, inputs: Mapping[str, object]) -> None:
        self._path = path
        self._inputs = json.loads(json.dumps(inputs))
        self._found: dict[Key, Candidate] = {}
        lines = self._whole_lines()
        if lines:
            self._check(lines[0])
            self._read(lines[1:])

    def __contains__(self, key: Key) -> bool:
        return key in self._found

    def __getitem__(self, key: Key) -> Candidate:
        return self._found[key]

    def add(self, key: Key, measured: Candidate) -> None:
        """Keep a measurement: it is on disk when this returns.

        Raises:
            InvalidInputError: the file cannot be written.
        """
        scale_map, radius, _ = key
        content = measured.model_dump(mode="json")
        line: dict[str, object] = {"scale_map": scale_map, "radius": radius, **content}
        self._append([line] if self._path.exists() else [{"inputs": self._inputs}, line])
        self._found[key] = measured

    def _append(self, lines: list[dict[str, object]]) -> None:
        text = "".join(f"{json.dumps(line, sort_keys=True)}\n" for line in lines)
        try:
            with self._path.open("ab") as file:
                file.write(text.encode())
                file.flush()
                os.fsync(file.fileno())
        except OSError as error:
            raise self._unusable(error) from error

    def _whole_lines(self) -> list[bytes]:
        """Return the lines, cutting off one that was broken off while it was written."""
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
            raise self._unusable(error) from error
        return whole.splitlines()

    def _check(self, line: bytes) -> None:
        try:
            there = json.loads(line)["inputs"]
            names = sorted(there.keys() | self._inputs.keys())
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise self._foreign("it is no journal of measurements") from error
        for name in names:
            if there.get(name) != self._inputs.get(name):
                old, new = _brief(there.get(name)), _brief(self._inputs.get(name))
                raise self._foreign(f"{name} is {old} there, {new} here")

    def _read(self, lines: list[bytes]) -> None:
        try:
            for line in lines:
                content = json.loads(line)
                scale_map, radius = content.pop("scale_map"), content.pop("radius")
                measured = Candidate.model_validate(content)
                self._found[scale_map, radius, measured.seed] = measured
        except (ValueError, KeyError, TypeError, AttributeError, ValidationError) as error:
            raise self._foreign(f"a line of it is damaged: {error}") from error

    def _foreign(self, reason: str) -> ConflictError:
        return ConflictError(
            f"{self._path} holds measurements that do not go on here: {reason}",
            field="out",
            remedy="name another directory with --out, or go on where they were made",
        )

    def _unusable(self, error: OSError) -> InvalidInputError:
        return InvalidInputError(f"cannot use {self._path}: {error.strerror}", field="out")


def _brief(value: object) -> str:
    text = json.dumps(value, sort_keys=True)
    return text if len(text) < 80 else f"{text[:76]}..."
