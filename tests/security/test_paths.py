"""Specs that name files outside of the roots, or models with code."""

import json
import shutil

import pytest

from modnorm.checkpoint.reference import resolve_checkpoint
from modnorm.errors import InvalidInputError

SECRET = "do-not-tell"


@pytest.fixture(scope="session")
def outside(tmp_path_factory):
    """A folder outside of the roots with rows, a profile and a model."""
    folder = tmp_path_factory.mktemp("outside")
    rows = [{"question": SECRET, "answer": "#### 1"}] * 3
    (folder / "rows.jsonl").write_text("\n".join(map(json.dumps, rows)))
    (folder / "profile.json").write_text(json.dumps({SECRET: 1}))
    shutil.copytree(resolve_checkpoint("tiny-thicket").directory, folder / "model")
    return folder


@pytest.fixture(scope="session")
def rooted(lab, outside):
    """The roots of the lab, with links out of them."""
    data, models = lab.folder / "data", lab.folder / "models"
    shutil.copy(outside / "rows.jsonl", data / "good.jsonl")
    (data / "link.jsonl").symlink_to(outside / "rows.jsonl")
    (data / "profile.json").symlink_to(outside / "profile.json")
    (data / "folder").symlink_to(outside)
    shutil.copytree(outside / "model", models / "good")
    (models / "link").symlink_to(outside / "model")
    for name in ("model.safetensors", "tokenizer.json", "config.json"):
        copied = models / f"linked-{name}"
        shutil.copytree(outside / "model", copied)
        (copied / name).unlink()
        (copied / name).symlink_to(outside / "model" / name)
    return lab.folder


SOURCES = [
    "{outside}/rows.jsonl",
    "{root}/data/../../{outside}/rows.jsonl",
    "{root}/data/link.jsonl",
    "{root}/data/folder/rows.jsonl",
    "link.jsonl",
    "folder/rows.jsonl",
    "../data/../../rows.jsonl",
    "split:../../etc/passwd",
    "bundled:../../../pyproject",
    "/proc/self/environ",
    "/etc/passwd",
    "~/x.jsonl",
    "~nobody-here/x.jsonl",
    "/a\0b.jsonl",
    "/" + "x" * 300 + ".jsonl",
]
MODELS = [
    "{outside}/model",
    "{root}/models/../../{outside}/model",
    "{root}/models/link",
    "{root}/models/linked-model.safetensors",
    "{root}/models/linked-tokenizer.json",
    "{root}/models/linked-config.json",
    "../model",
    "~",
    "~nobody-here",
    "/proc/self",
    "/a\0b",
    "/" + "x" * 300,
]
PROFILES = [
    "{outside}/profile.json",
    "{root}/data/profile.json",
    "{root}/data/folder/profile.json",
    "../profile.json",
    "/etc/passwd",
    "~nobody-here/x",
    "/a\0b",
    "/" + "x" * 300,
]


def task(source):
    bundled = {"source": "bundled:word-problems-selection", "limit": 2}
    return {"name": "gsm8k", "selection": {"source": source}, "heldout": bundled, "max_tokens": 8}


def method(profile):
    return {"name": "modular_norm", "radius": 0.3, "profile": profile}


@pytest.mark.parametrize(
    ("section", "field", "make", "names"),
    [
        ("task", "task.selection", task, SOURCES),
        ("model", "model.name", lambda name: {"name": name}, MODELS),
        ("method", "method.profile", method, PROFILES),
    ],
)
def test_files_outside_the_roots_are_not_found(
    section, field, make, names, rooted, outside, client, spec, stored
):
    before, owner = stored(), client("team-a")
    for name in names:
        path = name.format(root=rooted, outside=outside)
        with pytest.raises(InvalidInputError) as refused:
            owner.submit(spec(**{section: make(path)}))
        assert (refused.value.field or "").startswith(field), path
        assert SECRET not in str(refused.value)
    assert stored() == before


@pytest.mark.parametrize(
    ("section", "make", "there"),
    [
        ("task", task, "rows.jsonl"),
        ("model", lambda name: {"name": name}, "model"),
        ("method", method, "profile.json"),
    ],
)
def test_errors_reveal_no_file_outside_of_the_roots(section, make, there, outside, client, spec):
    said = set()
    for name in (there, f"no-{there}"):
        with pytest.raises(InvalidInputError) as refused:
            client("team-a").submit(spec(**{section: make(f"{outside}/{name}")}))
        said.add(str(refused.value).replace(f"{outside}/{name}", "PATH"))
    assert len(said) == 1


def test_files_inside_the_roots_are_accepted(rooted, client, spec):
    owner = client("team-a")
    for source in (f"{rooted}/data/good.jsonl", "good.jsonl"):
        owner.cancel(owner.submit(spec(task=task(source))).id)
    owner.cancel(owner.submit(spec(model={"name": f"{rooted}/models/good"})).id)
