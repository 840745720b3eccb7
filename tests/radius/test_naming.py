import pytest

from modnorm.client.tuning import Trial, grid_document
from modnorm.errors import InvalidInputError
from modnorm.radius.artifact import RadiusArtifact, carry_radius, keep_artifact, radius_folder
from modnorm.spec import parse_spec
from modnorm.v1.experiment_pb2 import Provenance
from tests.faults import error_at


@pytest.fixture
def artifact(spec):
    provenance = Provenance(
        model_digest="a" * 64,
        scale_map_digest="b" * 64,
        selection_digest="c" * 64,
        heldout_digest="d" * 64,
        scorer="countdown-v2",
    )
    trials = [Trial(0.004, 39, 0.25, provenance), Trial(0.008, 39, 0.5, provenance)]
    return RadiusArtifact.of(grid_document(spec, trials))


@pytest.fixture
def naming(spec):
    """The spec, with the radius named by an artifact."""

    def name(artifact):
        content = spec.model_dump(mode="json")
        return parse_spec(
            {**content, "method": {"name": "randopt", "sigma": {"artifact": artifact}}}
        )

    return name


def test_a_file_gives_the_number_and_where_it_is_from(artifact, naming, tmp_path):
    file = tmp_path / "radius.json"
    file.write_text(artifact.to_json())
    method = carry_radius(naming(str(file))).method
    assert method.radius == 0.008
    assert method.radius_source is not None
    assert method.radius_source.artifact == artifact.digest
    assert method.radius_source.development_digest == "d" * 64


def test_a_digest_finds_what_was_made_on_this_machine(artifact, naming, tmp_path):
    keep_artifact(artifact, tmp_path)
    spec = carry_radius(naming(artifact.digest), tmp_path)
    assert spec.method.radius == 0.008
    assert carry_radius(spec) is spec


@pytest.mark.parametrize("name", ["no/such/radius.json", "0" * 64])
def test_an_artifact_that_is_not_there_is_refused(name, naming, tmp_path):
    with error_at("method.radius") as caught:
        carry_radius(naming(name), tmp_path)
    assert caught.value.remedy


def test_a_file_under_the_name_of_another_digest_is_refused(artifact, naming, tmp_path):
    keep_artifact(artifact, tmp_path)
    folder = radius_folder(tmp_path)
    (folder / f"{artifact.digest}.json").rename(folder / f"{'0' * 64}.json")
    with pytest.raises(InvalidInputError, match="another artifact"):
        carry_radius(naming("0" * 64), tmp_path)
