"""A functional matching through the aggregator equals a local one."""

import asyncio

import pytest

from modnorm.client.client import Client
from modnorm.client.lab_matching import LabStep, match_in_lab
from modnorm.client.matching import make_plan
from modnorm.client.settings import ClientSettings
from modnorm.errors import InvalidInputError
from modnorm.radius.artifact import RadiusArtifact
from modnorm.radius.artifact_schema import MatchingSettings
from modnorm.radius.functional_matching import match
from modnorm.spec import parse_spec
from modnorm.wire.radius_conversions import Matching
from tests.faults import error_at


@pytest.fixture
def make_spec():
    def make(**method):
        rows = {"source": "bundled:countdown-selection", "limit": 6}
        return parse_spec(
            {
                "model": "tiny-thicket",
                "task": {
                    "name": "countdown",
                    "selection": rows,
                    "heldout": {**rows, "offset": 6},
                    "max_tokens": 16,
                },
                "method": {"radius": {"artifact": "not-there-yet.json"}, **method},
                "population": {"size": 2},
                "calibration": {"examples": 2, "iterations": 1, "max_length": 16},
            }
        )

    return make


MATCHING = Matching((0.04, 0.16), 0.004, MatchingSettings(prompts=3, candidates=1))


def ask(start_lab, spec, matching=MATCHING, on_step=None):
    """Match in a lab; returns the artifact and the steps on the way."""
    steps: list[LabStep] = []

    def call(port):
        with Client(f"127.0.0.1:{port}") as client:
            return match_in_lab(client, spec, matching, on_step or steps.append)

    async def scenario():
        async with start_lab() as lab:
            return await asyncio.to_thread(call, lab.aggregator.port)

    return asyncio.run(scenario()), steps


def test_a_lab_calibrates_measures_and_gives_the_same_artifact(start_lab, make_spec, tmp_path):
    spec = make_spec(name="modular_norm")
    artifact, steps = ask(start_lab, spec)
    phases = list(dict.fromkeys(step.phase for step in steps))
    assert phases == ["calibrating", "measuring"]
    assert (steps[-1].done, steps[-1].total) == (3, 3)
    plan = make_plan(
        spec,
        radii=MATCHING.radii,
        sigma=MATCHING.sigma,
        settings=MATCHING.settings,
        folder=tmp_path,
        client=ClientSettings(cache_dir=tmp_path / "cache"),
    )
    assert artifact == RadiusArtifact.of(match(plan, tmp_path / "measurements.jsonl"))


@pytest.mark.parametrize(
    ("method", "matching", "field"),
    [
        ({"name": "guess"}, MATCHING, "method.name"),
        ({"name": "no_sensitivity", "profile": "p.json"}, MATCHING, "method.profile"),
        ({"name": "no_sensitivity"}, Matching((), 0.004, MATCHING.settings), "radii"),
        (
            {"name": "no_sensitivity"},
            Matching((1.0,), 0.004, MatchingSettings(prompts=7)),
            "task.selection",
        ),
    ],
)
def test_an_invalid_matching_is_refused(start_lab, make_spec, method, matching, field):
    with error_at(field):
        ask(start_lab, make_spec(**method), matching)


@pytest.mark.parametrize(
    ("matching", "field"),
    [
        (Matching((), 0.004, MATCHING.settings), "radii"),
        (Matching((0.1,) * 1_001, 0.004, MATCHING.settings), "radii"),
        (Matching((0.1,), 0.0, MATCHING.settings), "sigma"),
        (Matching((0.1,), 0.004, MatchingSettings(prompts=7)), "task.selection"),
    ],
)
def test_an_invalid_matching_is_refused_before_a_calibration(
    start_lab, make_spec, matching, field
):
    steps: list[LabStep] = []
    with pytest.raises(InvalidInputError) as caught:
        ask(start_lab, make_spec(name="modular_norm"), matching, steps.append)
    assert (caught.value.field, steps) == (field, [])
