"""A low-rank run, its manifest, and the checkpoints and adapters that are made of both."""

import pytest


@pytest.fixture(scope="module")
def low_rank(modnorm, write_spec, tmp_path_factory):
    """The directory of a run of rank 16 on linear layers."""
    spec = write_spec(
        "low-rank",
        method={"name": "randopt", "sigma": 0.01, "rank": 16, "target_modules": "all-linear"},
        population={"size": 2, "ensemble_sizes": [2]},
        task__max_tokens=8,
    )
    directory = tmp_path_factory.mktemp("low-rank") / "run"
    modnorm("run", spec, "--out", directory)
    return directory


@pytest.fixture(scope="module")
def manifest(modnorm, low_rank):
    path = low_rank.parent / "ensemble.json"
    modnorm("export", low_rank, "--manifest", "--k", 2, "--out", path)
    return path


def test_a_run_and_its_manifest_give_the_same_adapters(modnorm, low_rank, manifest, tmp_path):
    for source, folder in ((low_rank, "run"), (manifest, "manifest")):
        modnorm("export", source, "--adapters", "--k", 2, "--out", tmp_path / folder)
    for rank in (1, 2):
        for name in ("adapter_config.json", "adapter_model.safetensors", "candidate.json"):
            file = f"expert-{rank}/{name}"
            of_run = (tmp_path / "run" / file).read_bytes()
            assert of_run == (tmp_path / "manifest" / file).read_bytes(), file
