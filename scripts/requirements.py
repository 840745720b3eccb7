"""Print what the distribution needs, for images that install it before the code is there.

    requirements.py EXTRA...
    requirements.py EXTRA... --constraints FILE --present FILE

The second form is for an image that brings packages of its own: `present` lists them as
`name==version`, and what is there already stays as it is. Everything else is pinned as in
`constraints`. Standard library only.
"""

import argparse
import re
import tomllib
from pathlib import Path

_NAME = re.compile(r"[A-Za-z0-9][\w.-]*")


def main() -> None:
    """Print one requirement a line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("extra", nargs="*")
    parser.add_argument("--constraints", type=Path)
    parser.add_argument("--present", type=Path)
    arguments = parser.parse_args()
    project = tomllib.loads(Path("pyproject.toml").read_text(encoding="utf-8"))["project"]
    wanted = list(project["dependencies"])
    for extra in arguments.extra:
        wanted += project["optional-dependencies"][extra]
    pins = _versions(arguments.constraints)
    present = _versions(arguments.present)
    for requirement in wanted:
        name = _canonical(requirement)
        print(requirement if _given(name, present) else _pinned(requirement, pins.get(name)))


def _versions(file: Path | None) -> dict[str, str]:
    """Return the lines of a file of `name==version` by name."""
    lines = file.read_text(encoding="utf-8").splitlines() if file else []
    return {_canonical(line): line.partition("==")[2] for line in lines if "==" in line}


def _canonical(requirement: str) -> str:
    found = _NAME.match(requirement)
    if found is None:
        raise SystemExit(f"not a requirement: {requirement!r}")
    return re.sub(r"[-_.]+", "-", found.group()).lower()


def _given(name: str, present: dict[str, str]) -> bool:
    """Say whether the version is settled: it is there, or follows grpcio's, which is there."""
    return name in present or (name.startswith("grpcio-") and "grpcio" in present)


def _pinned(requirement: str, version: str | None) -> str:
    """Add an exact version to a requirement's own bounds."""
    if version is None:
        return requirement
    return f"{requirement}{',' if re.search('[<>=]', requirement) else ''}=={version}"


if __name__ == "__main__":
    main()
