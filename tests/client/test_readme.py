"""The README's example of the client, run as it stands but for the address."""

import re
from pathlib import Path

import pytest
import yaml

from modnorm.spec import load_spec, parse_spec
from modnorm.v1 import experiment_pb2 as experiments
from modnorm.wire.conversions import spec_from_proto

ROOT = Path(__file__).parents[2]
SUCCEEDED = experiments.EXPERIMENT_STATE_SUCCEEDED


@pytest.fixture
def example():
    (found,) = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    return found


@pytest.fixture
def lab(serve_directory, gsm8k_experiment, gsm8k_stored):
    """The address of a lab in which every experiment is over; and the specs that it got."""
    specs = []

    def create(request, context):
        specs.append(spec_from_proto(request.spec))
        return experiments.CreateExperimentResponse(experiment=gsm8k_experiment)

    def watch(request, context):
        yield experiments.WatchExperimentResponse(cursor=1, state=SUCCEEDED, message="the end")

    address = serve_directory(
        gsm8k_experiment, gsm8k_stored, CreateExperiment=create, WatchExperiment=watch
    )
    return address, specs


def test_the_spec_of_the_readme_is_one_that_its_commands_can_use():
    text = (ROOT / "README.md").read_text()
    (found,) = re.findall(r"```yaml\n(.*?)```", text, re.DOTALL)
    spec = parse_spec(yaml.safe_load(found))
    assert "modnorm rescore runs/mine" in text
    assert spec.method.radius is not None


def test_the_example_of_the_readme_runs(example, lab, monkeypatch, capsys):
    address, specs = lab
    monkeypatch.chdir(ROOT)
    exec(example.replace("aggregator.example:50051", address), {})
    assert specs == [load_spec("examples/demo-modular-norm.yaml")]
    out = capsys.readouterr().out
    assert "the end 0" in out
    assert "population" in out
