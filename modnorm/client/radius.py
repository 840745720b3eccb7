"""Radii that specs name by an artifact: read where the spec is read, so that labs get numbers."""

from pathlib import Path

from modnorm.errors import InvalidInputError
from modnorm.files import is_digest, write_file
from modnorm.radius.artifact import RadiusArtifact
from modnorm.spec import ExperimentSpec
from modnorm.tasks.row_files import resolve_file

_FIELD = "method.radius"


def radius_folder(cache: Path) -> Path:
    """Return where the artifacts made on this machine are kept, each as `DIGEST.json`."""
    return cache / "radii"


def carry_radius(spec: ExperimentSpec, cache: Path | None = None) -> ExperimentSpec:
    """Return a spec whose radius is a number, read from the artifact that it names, if any.

    Digests are looked up in the cache directory of the client, if one is given.
    """
    source = spec.method.radius_source
    if source is None or spec.method.is_resolved:
        return spec
    return _find(source.artifact, cache).resolve(spec)


def keep_artifact(artifact: RadiusArtifact, cache: Path) -> None:
    """Keep an artifact where specs can name it by its digest."""
    path = radius_folder(cache) / f"{artifact.digest}.json"
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_file(path, artifact.to_json().encode())
    except OSError as error:
        raise InvalidInputError(
            f"cannot write {path}: {error.strerror}",
            field="cache_dir",
            remedy="set MODNORM_CACHE_DIR to a directory that can be written",
        ) from error


def _find(name: str, cache: Path | None) -> RadiusArtifact:
    if not is_digest(name):
        return RadiusArtifact.load(resolve_file(name, _FIELD, None))
    path = None if cache is None else radius_folder(cache) / f"{name}.json"
    if path is None or not path.is_file():
        raise InvalidInputError(
            f"there is no radius artifact {name[:16]}... on this machine",
            field=_FIELD,
            remedy="name the file that `modnorm tune` or `modnorm match` wrote",
        )
    artifact = RadiusArtifact.load(path)
    if artifact.digest != name:
        raise InvalidInputError(
            f"{path} holds another artifact than its name states",
            field=_FIELD,
            remedy="remove it, and name the file that `modnorm tune` or `modnorm match` wrote",
        )
    return artifact
