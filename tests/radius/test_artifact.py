import json

import pytest

from modnorm.errors import InvalidInputError
from modnorm.radius.artifact import RadiusArtifact, carry_radius, keep_artifact, radius_folder
from modnorm.spec import parse_spec
from tests.faults import error_at

METRICS = {0.08: (0.5, 0.25), 0.16: (0.25, 0.75)}


@pytest.fixture
def make_spec():
    def make(artifact, *, name="randopt", task="countdown", **more):
        return parse_spec(
            {
                "model": "somebody/Small",
                "task": {"name": task, "selection": "s.jsonl", "heldout": "h.jsonl"},
                "method": {"name": name, "radius": {"artifact": artifact, **more}},
                "population": {"size": 2},
            }
        )

    return make


def test_the_digest_is_of_the_content_not_of_its_formatting(make_grid):
    artifact = make_grid(METRICS, 0.16)
    again = RadiusArtifact.from_json(json.dumps(json.loads(artifact.to_json()), indent=3))
    assert again == artifact
    assert again.digest == artifact.digest


def test_a_radius_that_the_measurements_do_not_choose_is_refused(make_grid):
    content = json.loads(make_grid(METRICS, 0.16).to_json())
    content["radius"] = 0.08
    with error_at("method.radius", r"the measurements choose 0\.16"):
        RadiusArtifact.from_json(json.dumps(content))


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [(("model", "digest"), "abc", "model.digest"), (("protocol",), "guess", "protocol")],
)
def test_damaged_content_is_refused_with_its_place(make_grid, path, value, message):
    content = json.loads(make_grid(METRICS, 0.16).to_json())
    place = content
    for step in path[:-1]:
        place = place[step]
    place[path[-1]] = value
    with pytest.raises(InvalidInputError, match=message):
        RadiusArtifact.from_json(json.dumps(content))


def test_a_file_gives_the_number_and_where_it_is_from(make_grid, make_spec, tmp_path):
    artifact = make_grid(METRICS, 0.16)
    file = tmp_path / "radius.json"
    file.write_text(artifact.to_json())
    method = carry_radius(make_spec(str(file)), tmp_path).method
    assert method.radius == 0.16
    assert method.is_resolved
    assert method.radius_source is not None
    assert method.radius_source.artifact == artifact.digest
    assert method.radius_source.model_digest == "a" * 64
    assert method.radius_source.protocol == "grid"
    assert method.radius_source.development_digest == "d" * 64


def test_a_digest_finds_what_was_made_on_this_machine(make_grid, make_spec, tmp_path):
    artifact = make_grid(METRICS, 0.16)
    keep_artifact(artifact, tmp_path)
    spec = carry_radius(make_spec(artifact.digest), tmp_path)
    assert spec.method.radius == 0.16
    assert carry_radius(spec, tmp_path) is spec


@pytest.mark.parametrize("name", ["no/such/radius.json", "0" * 64])
def test_an_artifact_that_is_not_there_is_refused(name, make_spec, tmp_path):
    with error_at("method.radius") as caught:
        carry_radius(make_spec(name), tmp_path)
    assert caught.value.remedy


def test_a_file_under_the_name_of_another_digest_is_refused(make_grid, make_spec, tmp_path):
    artifact = make_grid(METRICS, 0.16)
    keep_artifact(artifact, tmp_path)
    folder = radius_folder(tmp_path)
    (folder / f"{artifact.digest}.json").rename(folder / f"{'0' * 64}.json")
    with pytest.raises(InvalidInputError, match="another artifact"):
        carry_radius(make_spec("0" * 64), tmp_path)


@pytest.mark.parametrize(
    ("more", "message"),
    [({"name": "frobenius"}, "method.name is randopt"), ({"task": "gsm8k"}, "task countdown")],
)
def test_a_spec_of_another_method_or_task_is_refused(make_grid, make_spec, more, message):
    with error_at("method.radius", message) as caught:
        make_grid(METRICS, 0.16).resolve(make_spec("radius.json", **more))
    assert caught.value.remedy


def test_a_transfer_to_another_task_is_recorded_in_the_spec(make_grid, make_spec):
    spec = make_spec("radius.json", task="gsm8k", transfer=True)
    settled = make_grid(METRICS, 0.16).resolve(spec)
    assert settled.method.radius == 0.16
    assert settled.method.radius_source.transfer
    assert settled.method.radius_source.task == "countdown"


def test_another_rank_is_refused(make_grid, make_spec):
    artifact = make_grid(METRICS, 0.16)
    assert "rank" not in artifact.to_json()
    content = make_spec("radius.json").model_dump(mode="json")
    content["method"]["rank"] = 4
    with pytest.raises(InvalidInputError, match="is None, that of the spec is 4"):
        artifact.resolve(parse_spec(content))
    low = json.loads(artifact.to_json())
    low["method"]["rank"] = 4
    settled = RadiusArtifact.from_json(json.dumps(low)).resolve(parse_spec(content))
    assert (settled.method.rank, settled.method.radius) == (4, 0.16)


def test_a_field_of_a_wrong_type_is_named(make_grid):
    content = json.loads(make_grid(METRICS, 0.16).to_json())
    text = json.dumps({**content, "task": 3})
    with error_at("method.radius", r"task: must be a text, not 3"):
        RadiusArtifact.from_json(text)
