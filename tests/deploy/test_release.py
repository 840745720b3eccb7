"""The release: one version everywhere, and a wheel with one package."""

import os
import shutil
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import yaml
from packaging.requirements import Requirement
from packaging.version import Version

from modnorm import __version__
from modnorm.v1 import experiment_pb2_grpc

ROOT = Path(__file__).parents[2]


def project_version():
    return tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]


def test_no_grpc_is_allowed_that_the_generated_code_refuses():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    needed = next(one for one in map(Requirement, project["dependencies"]) if one.name == "grpcio")
    (least,) = (one.version for one in needed.specifier if one.operator == ">=")
    assert Version(least) >= Version(experiment_pb2_grpc.GRPC_GENERATED_VERSION)


def test_every_file_has_the_same_version():
    version = project_version()
    assert __version__ == version
    assert f"\n## {version} - " in (ROOT / "CHANGELOG.md").read_text()
    assert str(yaml.safe_load((ROOT / "CITATION.cff").read_text())["version"]) == version
    assert f"#MODNORM_VERSION={version}\n" in (ROOT / ".env.example").read_text()
    assert f"${{MODNORM_VERSION:-{version}}}" in (ROOT / "compose.yaml").read_text()


def test_a_wheel_has_one_package_and_works_beside_another_named_services(tmp_path):
    source, installed, foreign = (tmp_path / name for name in ("source", "installed", "foreign"))
    for folder in ("modnorm", "services"):
        ignored = shutil.ignore_patterns("__pycache__")
        shutil.copytree(ROOT / folder, source / folder, symlinks=True, ignore=ignored)
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source)
    pip = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check"]
    build = [*pip, "wheel", "--no-deps", "--no-build-isolation", "--wheel-dir", tmp_path, source]
    subprocess.run(build, check=True)
    (wheel,) = tmp_path.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
        archive.extractall(installed)
    version = project_version()
    tops = {name.partition("/")[0] for name in names}
    assert tops == {"modnorm", f"modnorm-{version}.dist-info"}
    modules = {path.relative_to(ROOT).as_posix() for path in (ROOT / "services").rglob("*.py")}
    assert {f"modnorm/{name}" for name in modules} <= names

    (foreign / "services").mkdir(parents=True)
    (foreign / "services/__init__.py").write_text("raise ImportError('not of modnorm')\n")
    load = (
        "import inspect\n"
        "from importlib.metadata import entry_points\n"
        "for group in ('modnorm.embedded', 'modnorm.unfinished'):\n"
        "    (entry,) = entry_points(group=group)\n"
        "    print(inspect.getmodule(entry.load()).__file__)\n"
    )
    path = os.pathsep.join(map(str, (foreign, installed)))
    loaded = subprocess.run(
        [sys.executable, "-c", load],
        env=os.environ | {"PYTHONPATH": path},
        cwd=tmp_path,
        check=True,
        capture_output=True,
        text=True,
    )
    files = [
        installed / "modnorm/services" / name for name in ("embedded.py", "embedded_state.py")
    ]
    assert loaded.stdout.split() == list(map(str, files))
