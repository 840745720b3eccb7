"""`modnorm match` on the bundled model, with a handful of prompts and candidates; `tune`."""

import os

import pytest
import torch
import yaml

from modnorm.radius.artifact import carry_radius
from modnorm.spec import load_spec
from verification.labs.waiting import wait_until

FEW = ("--prompts", "2", "--candidates", "1", "--radii", "0.02,0.16", "--sigma", "0.004")


@pytest.fixture
def cache(tmp_path, monkeypatch):
    folder = tmp_path / "cache"
    monkeypatch.setenv("MODNORM_CACHE_DIR", str(folder))
    return folder


@pytest.fixture
def write_spec(spec, tmp_path):
    """Write a spec whose radius is named by an artifact that is not there yet."""

    def write(**method):
        content = spec.model_dump(mode="json")
        named = {"artifact": str(tmp_path / "out" / "radius.json")}
        file = tmp_path / "spec.yaml"
        file.write_text(yaml.safe_dump({**content, "method": {"radius": named, **method}}))
        return file

    return write


@pytest.fixture
def start(start_modnorm):
    """Run the command in a process with as many threads as this one: rounding depends on them."""
    threads = {"OMP_NUM_THREADS": str(torch.get_num_threads())}
    return lambda *arguments: start_modnorm(*arguments, environment=os.environ | threads)


def measured(out):
    return sum(len(path.read_bytes().splitlines()) for path in out.glob("measurements-*.jsonl"))


def test_killed_and_started_again_it_ends_in_an_artifact_which_the_spec_names(
    write_spec, start, modnorm_json, tmp_path, cache
):
    spec_file, out = write_spec(name="no_sensitivity"), tmp_path / "out"
    killed = start("match", spec_file, "--out", out, *FEW)
    wait_until(lambda: measured(out) >= 1 or killed.has_ended(), "a measurement", pause=0.01)
    assert not killed.has_ended(), killed.stderr
    killed.process.kill()
    killed.process.wait()
    assert not (out / "radius.json").exists()
    again = modnorm_json("match", spec_file, "--out", out, *FEW)
    assert measured(out) == 3
    assert (cache / "radii" / f"{again['digest']}.json").exists()
    assert len(again["choice_shares"]) == len(again["artifact"]["radii"])
    assert sum(again["choice_shares"]) == pytest.approx(1)
    named = carry_radius(load_spec(spec_file), tmp_path).method
    assert named.radius == again["artifact"]["radius"]
    assert named.radius_source is not None
    assert named.radius_source.artifact == again["digest"]
    assert named.radius_source.protocol == "functional-matching"


@pytest.mark.parametrize(
    ("method", "arguments", "field"),
    [
        ({"name": "base", "radius": 0.0}, (), "method.name"),
        ({"name": "randopt"}, (), "method.name"),
        ({"name": "frobenius", "profile": "p.json"}, (), "method.profile"),
        ({"name": "modular_norm", "profile": "0" * 64}, (), "method.profile"),
        ({"name": "frobenius"}, ("--radii", "0.1,0.1"), "radii"),
        ({"name": "frobenius"}, ("--sigma", "0"), "sigma"),
        ({"name": "frobenius"}, ("--prompts", "5000"), "task.selection"),
    ],
)
def test_an_invalid_matching_is_refused(
    method, arguments, field, write_spec, refusal, tmp_path, cache
):
    err = refusal("match", write_spec(**method), "--out", tmp_path / "out", "--quiet", *arguments)
    assert err.startswith("error: ")
    assert f" {field}: " in err
    assert not measured(tmp_path / "out")


def test_an_iterative_method_is_refused(spec, refusal, tmp_path):
    """Its radius is the sigma to which others are matched."""
    content = spec.model_dump(mode="json", exclude={"method", "population", "calibration"})
    method = {"name": "es", "radius": 0.01}
    file = tmp_path / "spec.yaml"
    file.write_text(yaml.safe_dump({**content, "method": method, "population": {"size": 4}}))
    err = refusal("match", file, "--out", tmp_path / "out", "--quiet")
    assert "method.name: es has isotropic noise" in err


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
