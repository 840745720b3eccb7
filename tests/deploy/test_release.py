"""The release: one version everywhere, a small demo that is valid, and an SBOM that is checked."""

import json
import os
import shutil
import subprocess
import sys
import zipfile

import pytest
import yaml

from modnorm.spec import ExperimentSpec
from scripts import release_check
from scripts.release_check import ROOT, check_changelog, check_sbom, project_version, smaller

DIRECT = ("torch", "grpcio", "transformers", "sqlmodel")
PINS = "torch==2.13.0\ngrpcio==1.78.2\n"


def sbom(**versions):
    parts = dict.fromkeys(DIRECT, "1") | {"torch": "2.13.0", "grpcio": "1.78.2"} | versions
    parts = {name: version for name, version in parts.items() if version}
    return json.dumps({"components": [{"name": n, "version": v} for n, v in parts.items()]})


def test_every_file_has_the_same_version():
    version = project_version()
    check_changelog(version)
    assert str(yaml.safe_load((ROOT / "CITATION.cff").read_text())["version"]) == version
    assert f"#MODNORM_VERSION={version}\n" in (ROOT / ".env.example").read_text()
    assert f"${{MODNORM_VERSION:-{version}}}" in (ROOT / "compose.yaml").read_text()


@pytest.mark.parametrize("name", release_check.DEMO)
def test_the_small_demo_is_valid_and_of_the_same_method(name):
    text = (ROOT / f"examples/{name}.yaml").read_text()
    small = ExperimentSpec.model_validate(yaml.safe_load(smaller(text)))
    assert small.method == ExperimentSpec.model_validate(yaml.safe_load(text)).method
    assert small.population.size == 4


def test_an_sbom_has_every_dependency_in_its_pinned_version():
    check_sbom(sbom(), PINS)
    check_sbom(sbom(torch="2.13.0+cpu"), PINS)
    with pytest.raises(SystemExit, match="lacks sqlmodel"):
        check_sbom(sbom(sqlmodel=""), PINS)
    with pytest.raises(SystemExit, match=r"grpcio is 1\.80\.0 in the SBOM and 1\.78\.2"):
        check_sbom(sbom(grpcio="1.80.0"), PINS)


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
