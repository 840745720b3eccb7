import json
import re

import pytest

from modnorm.client.tuning import Trial, check_development_rows, development_prompts, grid_document
from modnorm.radius.artifact import RadiusArtifact, carry_radius
from modnorm.spec import DataSpec, parse_spec
from modnorm.spec_checks import check_locally
from modnorm.tasks import get_task
from modnorm.tasks.columns import rows_digest
from modnorm.tasks.row_loading import BUNDLED, load_data
from modnorm.v1.experiment_pb2 import Provenance
from tests.faults import error_at


def puzzles(path, *targets, **others):
    """Write puzzles, which differ in their targets; returns the file's name."""
    rows = [{"numbers": [1, 2, 3], "target": target, **others} for target in targets]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return str(path)


@pytest.fixture
def tested_on(spec):
    """Make a spec with held-out rows, and perhaps a radius that an artifact names."""

    def make(heldout, radius=0.005):
        content = spec.model_dump(mode="json")
        task = {**content["task"], "heldout": heldout}
        return parse_spec(
            {**content, "task": task, "method": {"name": "randopt", "sigma": radius}}
        )

    return make


@pytest.fixture
def grid(tested_on):
    """Make the document of a grid that was voted on some rows."""

    def make(rows):
        trial = tested_on(rows)
        provenance = Provenance(
            model_digest="a" * 64,
            scale_map_digest="b" * 64,
            selection_digest="c" * 64,
            heldout_digest=digest_of(rows),
        )
        prompts = development_prompts(trial, provenance.heldout_digest)
        return grid_document(trial, [Trial(0.005, 39, 0.5, provenance)], prompts)

    return make


def digest_of(rows):
    named = DataSpec.model_validate(rows if isinstance(rows, dict) else {"source": rows})
    return rows_digest(load_data(get_task("countdown"), named, field="heldout").rows)


@pytest.mark.parametrize("by_name", [True, False])
def test_the_held_out_rows_of_the_spec_choose_no_scale(by_name, spec, tmp_path):
    own = spec.task.heldout
    copied = tmp_path / "copied.jsonl"
    copied.write_bytes((BUNDLED / "countdown-heldout.jsonl").read_bytes())
    rows = own if by_name else own.model_copy(update={"source": str(copied)})
    with error_at("heldout") as caught:
        check_development_rows(spec, rows)
    assert "--heldout" in (caught.value.remedy or "")


@pytest.mark.parametrize("source", ["bundled:countdown-development", "no/such.jsonl", "org/set"])
def test_other_development_rows_and_those_that_are_elsewhere_pass(source, spec):
    check_development_rows(spec, DataSpec(source=source, limit=4))


def test_a_single_row_of_the_test_is_counted_and_named(tested_on, tmp_path):
    heldout = puzzles(tmp_path / "test.jsonl", 6, 7, 8, 9)
    rows = puzzles(tmp_path / "dev.jsonl", 5, 9, 4, 7, solution="1 + 2 + 3")
    with error_at("heldout") as caught:
        check_development_rows(tested_on(heldout), DataSpec(source=rows))
    assert caught.value.message.startswith(
        "2 of 4 development rows have the prompts of rows of task.heldout: "
        f"first row 1 ({rows}, line 2), that of row 3 ({heldout}, line 4)"
    )
    assert "--heldout" in (caught.value.remedy or "")
    check_development_rows(tested_on(heldout), DataSpec(source=rows, limit=1))


@pytest.mark.parametrize(
    ("rows", "told"),
    [
        ({"offset": 0, "limit": 51}, "1 of org/set from row 50 on"),
        ({"offset": 149}, "1 of org/set from row 149 on"),
        ({}, "100 of org/set from row 50 on"),
        ({"offset": 0, "limit": 50}, None),
        ({"offset": 150}, None),
        ({"split": "train"}, None),
    ],
)
def test_of_a_data_set_of_the_hub_the_ranges_are_compared(rows, told, tested_on, monkeypatch):
    monkeypatch.setattr("datasets.config.HF_HUB_OFFLINE", True)
    spec = tested_on({"source": "org/set", "offset": 50, "limit": 100})
    named = DataSpec.model_validate({"source": "org/set", **rows})
    if told is None:
        check_development_rows(spec, named)
        return
    with error_at("heldout", re.escape(told)):
        check_development_rows(spec, named)


def test_an_artifact_that_was_chosen_on_some_rows_of_the_test_is_refused(
    tested_on, grid, tmp_path
):
    rows = puzzles(tmp_path / "dev.jsonl", 5, 6, 7)
    file = tmp_path / "radius.json"
    file.write_text(RadiusArtifact.of(grid(rows)).to_json())
    named = {"artifact": str(file)}
    apart = carry_radius(tested_on(puzzles(tmp_path / "apart.jsonl", 8, 9), named), tmp_path)
    assert apart.method.radius == 0.005
    check_locally(apart, folders=(), engines=("auto",))
    heldout = puzzles(tmp_path / "test.jsonl", 7, 8, other=1)
    shared = carry_radius(tested_on(heldout, named), tmp_path)
    with error_at("method.radius", "chosen on 1 of the 2 rows") as caught:
        check_locally(shared, folders=(), engines=("auto",))
    assert "task.heldout" in (caught.value.remedy or "")


def test_rows_that_are_not_those_of_the_trial_have_no_digests(tested_on, tmp_path):
    spec = tested_on(puzzles(tmp_path / "dev.jsonl", 5, 6))
    assert len(development_prompts(spec, digest_of(spec.task.heldout.source))) == 2
    assert development_prompts(spec, "d" * 64) == ()
    absent = tested_on(str(tmp_path / "absent.jsonl"))
    assert development_prompts(absent, "d" * 64) == ()
