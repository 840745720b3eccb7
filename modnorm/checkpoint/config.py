"""Reading of `config.json`: typed, and every fault named."""

import json
from collections.abc import Mapping
from pathlib import Path

from modnorm.errors import InvalidInputError

Config = Mapping[str, object]
"""A model's `config.json`."""


def load_config(path: Path) -> Config:
    """Read a `config.json`, given as the file or as the directory that holds it.

    Raises:
        InvalidInputError: the file is missing or is not a JSON object.
    """
    file = path / "config.json" if path.is_dir() else path
    data = load_json(file)
    if not isinstance(data, dict):
        raise InvalidInputError(
            f"{file} is not a JSON object",
            field="model.config",
            remedy="give the config.json of a Hugging Face model",
        )
    return data


def load_json(file: Path) -> object:
    """Read one JSON file of a checkpoint.

    Raises:
        InvalidInputError: the file cannot be read or is not JSON.
    """
    try:
        return json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise InvalidInputError(
            f"cannot read {file}: {error}",
            field="model.config",
            remedy="give a complete Hugging Face checkpoint",
        ) from error


def positive(config: Config, key: str) -> int:
    """Return a required positive integer."""
    value = optional_positive(config, key)
    if value is None:
        raise InvalidInputError(
            f"config.json lacks {key}",
            field=f"model.config.{key}",
            remedy="give the config.json that belongs to the weights",
        )
    return value


def optional_positive(config: Config, key: str) -> int | None:
    """Return a positive integer, or None when the key is absent or null."""
    value = config.get(key)
    if value is None:
        return None
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise InvalidInputError(
            f"{key} must be a positive integer, not {value!r}",
            field=f"model.config.{key}",
            remedy="correct config.json",
        )
    return value


def flag(config: Config, key: str) -> bool:
    """Return a boolean; absent or null means false."""
    value = config.get(key)
    if value is None:
        return False
    if not isinstance(value, bool):
        raise InvalidInputError(
            f"{key} must be true or false, not {value!r}",
            field=f"model.config.{key}",
            remedy="correct config.json",
        )
    return value
