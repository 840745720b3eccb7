from pathlib import Path

import pytest
import yaml

from modnorm.cli.radius import home_of

ROWS = "bundled:countdown-development"


@pytest.mark.parametrize(
    ("radii", "seeds", "field"), [("0.1,0.2,0.10", "39,40", "radii"), ("0.1", "39,39", "seeds")]
)
def test_a_trial_that_would_count_twice_is_refused(radii, seeds, field, refusal, spec, tmp_path):
    spec_file = tmp_path / "spec.yaml"
    spec_file.write_text(yaml.safe_dump(spec.model_dump(mode="json")))
    out = tmp_path / "out"
    err = refusal(
        "tune", spec_file, "--radii", radii, "--seeds", seeds, "--heldout", ROWS, "--out", out
    )
    assert err.startswith(f"error: {field}: ")
    assert "twice" in err
    assert not out.exists()


def test_development_rows_at_fault_are_named(refusal, spec, tmp_path):
    spec_file, out = tmp_path / "spec.yaml", tmp_path / "out"
    spec_file.write_text(yaml.safe_dump(spec.model_dump(mode="json")))
    rows = "{source: dev.jsonl, ofset: 3}"
    err = refusal("tune", spec_file, "--radii", "1", "--heldout", rows, "--out", out)
    assert err.startswith("error: heldout.ofset: ")
    assert not out.exists()


def test_an_ensemble_of_nobody_is_refused(refusal, spec, tmp_path):
    spec_file = tmp_path / "spec.yaml"
    spec_file.write_text(yaml.safe_dump(spec.model_dump(mode="json")))
    out = tmp_path / "out"
    err = refusal("tune", spec_file, "--radii", "1", "--ensemble-size", 0, "--out", out)
    assert "--ensemble-size" in err
    assert not out.exists()


@pytest.mark.parametrize("given", [False, True])
def test_development_rows_are_asked_for_and_are_not_those_of_the_test(
    given, refusal, spec, tmp_path
):
    spec_file, out = tmp_path / "spec.yaml", tmp_path / "out"
    content = spec.model_dump(mode="json")
    spec_file.write_text(yaml.safe_dump(content))
    rows = ("--heldout", yaml.safe_dump(content["task"]["heldout"], default_flow_style=True))
    err = refusal("tune", spec_file, "--radii", "1", *(rows if given else ()), "--out", out)
    assert err.startswith("error: heldout: ")
    assert "--heldout" in err
    assert not out.exists()


def test_the_artifact_is_beside_the_run_of_the_spec_where_no_directory_is_named():
    spec_file = Path("somewhere/mine.yaml")
    assert home_of(spec_file, "tune", None) == Path("runs/mine-tune")
    assert home_of(spec_file, "tune", Path("here")) == Path("here")
