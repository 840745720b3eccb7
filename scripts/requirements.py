"""Print the requirements of the distribution, for images that install them before the code.

    requirements.py EXTRA...
    requirements.py EXTRA... --constraints FILE --present FILE

The second form is for an image with its own packages: `present` lists them as
`name==version`, and these keep their versions. All others are pinned as in
`constraints`. Standard library only.
"""

import argparse
import re
import tomllib
from pathlib import Path

_NAME = re.compile(r"[A-Za-z0-9][\w.-]*")


def main() -> None:
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
    match = _NAME.match(requirement)
    if match is None:
        raise SystemExit(f"not a requirement: {requirement!r}")
    return re.sub(r"[-_.]+", "-", match.group()).lower()


def _given(name: str, present: dict[str, str]) -> bool:
    """Return whether the image fixes the version: it has the package, or grpcio for its family."""
    return name in present or (name.startswith("grpcio-") and "grpcio" in present)


def _pinned(requirement: str, version: str | None) -> str:
    """Add an exact version to a requirement's own bounds."""
    if version is None:
        return requirement
    return f"{requirement}{',' if re.search('[<>=]', requirement) else ''}=={version}"


if __name__ == "__main__":
    main()
