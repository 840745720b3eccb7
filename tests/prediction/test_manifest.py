"""Ensembles of the first experts of a manifest."""

import pytest

from modnorm.errors import NotFoundError
from modnorm.prediction.manifest import EnsembleManifest, ExamplePrompt
from tests.prediction.test_predictor import ensemble


@pytest.fixture
def manifest():
    prompt = ExamplePrompt(question={}, tokens_sha256="0" * 64)
    digests = ("0" * 64,) * 2
    return EnsembleManifest(ensemble([1, 2]), prompt, digests, digests, "modnorm-ensemble-3")


def test_a_manifest_has_ensembles_of_its_first_experts(manifest):
    assert manifest.narrowed(None, None).indices == (10, 20)
    assert manifest.narrowed(50, 1).indices == (10,)


@pytest.mark.parametrize(("population", "size"), [(None, 0), (None, 3), (None, -1), (20, 1)])
def test_other_sizes_are_refused(manifest, population, size):
    with pytest.raises(NotFoundError, match="no such ensemble"):
        manifest.narrowed(population, size)
