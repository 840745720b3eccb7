import pytest
import yaml

ROWS = "bundled:countdown-development"


@pytest.fixture
def refused(refusal, spec, tmp_path):
    """Tune a spec, which is refused before anything is written; returns stderr."""

    def tune(*options):
        spec_file, out = tmp_path / "spec.yaml", tmp_path / "out"
        spec_file.write_text(yaml.safe_dump(spec.model_dump(mode="json")))
        err = refusal("tune", spec_file, *options, "--out", out)
        assert not out.exists()
        return err

    return tune


@pytest.mark.parametrize(
    ("radii", "seeds", "field"), [("0.1,0.2,0.10", "39,40", "radii"), ("0.1", "39,39", "seeds")]
)
def test_a_trial_that_would_count_twice_is_refused(radii, seeds, field, refused):
    err = refused("--radii", radii, "--seeds", seeds, "--heldout", ROWS)
    assert err.startswith(f"error: {field}: ")
    assert "twice" in err


def test_development_rows_at_fault_are_named(refused):
    err = refused("--radii", "1", "--heldout", "{source: dev.jsonl, ofset: 3}")
    assert err.startswith("error: heldout.ofset: ")


@pytest.mark.parametrize(
    ("options", "fault"),
    [
        (("--radii", "-0.1,0.3"), "radii: must be from 1e-09 to 1e+09, not -0.1"),
        (("--radii", "0,0.3"), "radii: must be from 1e-09 to 1e+09, not 0"),
        (("--radii", "nan"), "radii: must be from 1e-09 to 1e+09, not nan"),
        (("--radii", "1", "--seeds", "-4"), "population.seed: "),
        (
            ("--radii", "1", "--ensemble-size", 9),
            "population.ensemble_sizes: K = 9 is greater than ",
        ),
        (("--radii", "1", "--heldout", "absent.jsonl"), "heldout.source: there is no file "),
        (
            ("--radii", "1", "--heldout", "{source: 'bundled:countdown-development', limit: 999}"),
            "heldout.limit: ",
        ),
    ],
)
def test_a_field_at_fault_is_named_without_a_line_of_the_spec(refused, options, fault):
    given = options if "--heldout" in options else (*options, "--heldout", ROWS)
    assert refused(*given).startswith(f"error: {fault}")


@pytest.mark.parametrize("given", [False, True])
def test_development_rows_are_asked_for_and_are_not_those_of_the_test(given, refused, spec):
    heldout = yaml.safe_dump(spec.task.heldout.model_dump(mode="json"), default_flow_style=True)
    err = refused("--radii", "1", *(("--heldout", heldout) if given else ()))
    assert err.startswith("error: heldout: ")
    assert "--heldout" in err
