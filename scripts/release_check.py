"""Build a release and prove that it can be installed and used.

    python -m scripts.release_check --tools VENV [--out DIR] [--torch REQUIREMENT]

Builds the sdist, and the wheel from it, and checks the metadata of both. Installs the wheel in a
new environment with the pinned dependencies, and runs a small demo in an empty directory. Installs
the sdist in a folder and compares its files with the wheel's. Writes an SBOM of the environment in
CycloneDX's form. Any failure ends it with exit code 1.
"""

import argparse
import json
import os
import subprocess
import sys
import tarfile
import tempfile
import tomllib
import zipfile
from collections.abc import Sequence
from pathlib import Path

import yaml

ROOT = Path(__file__).parents[1]
DEMO = ("demo-modular-norm", "demo-randopt")
SMALL = {
    "selection": 8,
    "heldout": 8,
    "population": {"size": 4, "prefixes": [2, 4], "ensemble_sizes": [1, 2], "seed": 42},
    "calibration": {"examples": 2},
}


def main() -> None:
    """Run all checks in order."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--tools", type=Path, required=True)
    parser.add_argument("--out", type=Path, default=ROOT / "dist")
    parser.add_argument("--torch", default="torch")
    arguments = parser.parse_args()
    sdist, wheel = build(arguments.tools, arguments.out)
    with tempfile.TemporaryDirectory(prefix="modnorm-release-") as scratch:
        environment = install(wheel, Path(scratch) / "venv", arguments.torch)
        check_sdist(sdist, wheel, environment, Path(scratch))
        run_demo(environment, sdist, Path(scratch))
        sbom = write_sbom(arguments.tools, environment, wheel)
    say(f"release: {sdist.name}, {wheel.name}, {sbom.name} in {arguments.out}")


def build(tools: Path, out: Path) -> tuple[Path, Path]:
    """Build the sdist, and the wheel from it; return both."""
    say("build the sdist, and the wheel from it")
    version = project_version()
    check_changelog(version)
    python = tools / "bin/python"
    run([python, "-m", "build", "--outdir", out, ROOT], cwd=ROOT)
    built = (out / f"modnorm-{version}.tar.gz", out / f"modnorm-{version}-py3-none-any.whl")
    run([python, "-m", "twine", "check", "--strict", *built], cwd=ROOT)
    return built


def install(wheel: Path, venv: Path, torch: str) -> Path:
    """Install a wheel in a new environment with the pinned dependencies; return its folder.

    The requirement `torch` is installed first, since others would draw the CUDA build.
    """
    say("install the wheel in a new environment")
    run([sys.executable, "-m", "venv", venv], cwd=venv.parent)
    pip: list[str | Path] = [venv / "bin/pip", "install", "--quiet", "--disable-pip-version-check"]
    run([*pip, torch], cwd=venv.parent)
    constraints = ROOT / "constraints.txt"
    run([*pip, "-c", constraints, f"{wheel}[services]"], cwd=venv.parent)
    run([venv / "bin/pip", "check", "--disable-pip-version-check"], cwd=venv.parent)
    return venv


def check_sdist(sdist: Path, wheel: Path, environment: Path, scratch: Path) -> None:
    """Exit unless an install of the sdist has the modules and data of the wheel."""
    say("install the sdist")
    folder = scratch / "sdist"
    pip: list[str | Path] = [environment / "bin/pip", "install", "--quiet"]
    options = ["--disable-pip-version-check", "--no-deps", "--no-compile"]
    run([*pip, *options, "--target", folder, sdist], cwd=scratch)
    installed = {path.relative_to(folder).as_posix() for path in folder.rglob("*")}
    with zipfile.ZipFile(wheel) as archive:
        names = [name for name in archive.namelist() if ".dist-info/" not in name]
    if missing := sorted(set(names) - installed):
        sys.exit(f"an install of {sdist.name} lacks {', '.join(missing)}")


def run_demo(environment: Path, sdist: Path, scratch: Path) -> None:
    """Use an installed wheel in an empty directory: its spec, and a small form of the demo."""
    say("run the demo in an empty directory")
    empty = scratch / "empty"
    empty.mkdir()
    modnorm = environment / "bin/modnorm"
    run([modnorm, "--version"], cwd=empty)
    run([modnorm, "init"], cwd=empty)
    for name in DEMO:
        (empty / f"{name}.yaml").write_text(smaller(read_member(sdist, f"examples/{name}.yaml")))
    specs = [f"{name}.yaml" for name in DEMO]
    run([modnorm, "validate", "spec.yaml", *specs], cwd=empty)
    for name, spec in zip(DEMO, specs, strict=True):
        run([modnorm, "run", spec, "--out", name, "--quiet"], cwd=empty)
        results = json.loads((empty / name / "results.json").read_text(encoding="utf-8"))
        if not results["ensembles"]:
            sys.exit(f"{name}: results.json has no ensembles")
    run([modnorm, "compare", *DEMO], cwd=empty)


def smaller(text: str) -> str:
    """Return a demo's spec with fewer candidates and rows."""
    spec = yaml.safe_load(text)
    spec["task"]["selection"]["limit"] = SMALL["selection"]
    spec["task"]["heldout"]["limit"] = SMALL["heldout"]
    spec["population"] = SMALL["population"]
    if "calibration" in spec:
        spec["calibration"] = SMALL["calibration"]
    return str(yaml.safe_dump(spec))


def write_sbom(tools: Path, environment: Path, wheel: Path) -> Path:
    """Write an SBOM of an environment beside the wheel, and return it."""
    say("write the SBOM")
    sbom = wheel.with_name(f"modnorm-{project_version()}.cdx.json")
    options: list[str | Path] = [
        "--output-reproducible",
        "--pyproject",
        ROOT / "pyproject.toml",
        "-o",
        sbom,
    ]
    program = tools / "bin/cyclonedx-py"
    run([program, "environment", *options, environment / "bin/python"], cwd=ROOT)
    check_sbom(sbom.read_text(encoding="utf-8"), (ROOT / "constraints.txt").read_text())
    return sbom


def check_sbom(sbom: str, constraints: str) -> None:
    """Exit if an SBOM lacks a direct dependency, or has another version than is pinned."""
    parts = {canonical(part["name"]): part["version"] for part in json.loads(sbom)["components"]}
    pins = dict(line.split("==") for line in constraints.splitlines() if "==" in line)
    pinned = {canonical(name): version for name, version in pins.items()}
    if missing := {"torch", "grpcio", "transformers", "sqlmodel"} - set(parts):
        sys.exit(f"the SBOM lacks {', '.join(sorted(missing))}")
    for name, version in parts.items():
        # A local version such as 2.13.0+cpu names a build of the pinned version.
        if name in pinned and version.partition("+")[0] != pinned[name]:
            sys.exit(f"{name} is {version} in the SBOM and {pinned[name]} in constraints.txt")


def project_version() -> str:
    """Return the version in pyproject.toml."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    return str(project["version"])


def check_changelog(version: str) -> None:
    """Exit if the changelog has no heading of a version."""
    lines = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8").splitlines()
    if not any(line.startswith(f"## {version} - ") for line in lines):
        sys.exit(f"CHANGELOG.md has no heading `## {version} - DATE`")


def read_member(sdist: Path, name: str) -> str:
    """Return the text of a file in an sdist."""
    with tarfile.open(sdist) as archive:
        member = archive.extractfile(f"{sdist.name.removesuffix('.tar.gz')}/{name}")
        if member is None:
            sys.exit(f"{sdist.name} has no {name}")
        return member.read().decode()


def canonical(name: str) -> str:
    """Return a distribution's name in its one spelling."""
    return name.replace("_", "-").replace(".", "-").lower()


def run(command: Sequence[str | Path], *, cwd: Path) -> None:
    """Run a command outside this checkout's import path; exit if it fails."""
    own = {"PYTHONPATH", "VIRTUAL_ENV"}
    environment = {key: value for key, value in os.environ.items() if key not in own}  # noqa: TID251
    if code := subprocess.run(
        [*map(str, command)], cwd=cwd, env=environment, check=False
    ).returncode:
        sys.exit(f"{' '.join(map(str, command))} failed with exit code {code}")


def say(text: str) -> None:
    """Print a line at once."""
    print(text, flush=True)


if __name__ == "__main__":
    main()
