"""Iterative runs through the front door."""

import json

import pytest

from modnorm.checkpoint.reference import resolve_checkpoint
from verification.labs.bundled_tasks import bundled_task
from verification.labs.waiting import wait_until


@pytest.fixture(scope="module")
def spec_file(write_spec):
    return write_spec(
        "evolved",
        task=bundled_task("countdown", selection=4, heldout=4, max_tokens=32),
        method={"name": "es", "radius": 0.006},
        population={"size": 2},
        iterative={"updates": 2, "rate": 0.006, "monitor": [1]},
    )


def test_a_killed_run_trains_the_same_model_which_can_be_exported(
    modnorm, start_command, spec_file, results, tmp_path
):
    broken, whole, model = tmp_path / "broken", tmp_path / "whole", tmp_path / "model"
    run = start_command("run", spec_file, "--out", broken)
    # Lines of progress come now and then; the first of the selection says that it goes on.
    wait_until(lambda: "selecting" in run.stderr or run.has_ended(), "the selection")
    assert "selecting" in run.stderr
    run.process.kill()
    run.finish()
    modnorm("run", spec_file, "--out", broken)
    modnorm("run", spec_file, "--out", whole)

    assert results(broken) == results(whole)
    assert (broken / "lineage.json").read_bytes() == (whole / "lineage.json").read_bytes()
    document = json.loads((whole / "results.json").read_text())
    iterative = document["iterative"]
    assert [state["updates"] for state in iterative["states"]] == [0, 1, 2]
    assert iterative["reported"] == 2
    assert iterative["ledger"]["search"]["pairs"] == 2 * 2 * 4
    assert iterative["main_run"] == 2 * 2 * 4 + 4
    exported = json.loads(modnorm("export", whole, "--out", model, "--json").stdout)
    assert exported["updates"] == 2
    assert resolve_checkpoint(str(model)).digest != resolve_checkpoint("tiny-thicket").digest
