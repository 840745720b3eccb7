"""Digests of candidates and trained states of the bundled model, as in published results.

Each dates from the time when the engine computed in the model's bfloat16. They are valid on any
machine, since the coefficients are fixed or do not depend on a norm.
"""

from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace

import pytest

from modnorm.checkpoint.reference import resolve_checkpoint
from modnorm.engines.transformers_engine import TransformersEngine
from modnorm.geometry.scale_map import ScaleMap
from modnorm.perturbation.descriptor import Descriptor
from modnorm.perturbation.lineage import Lineage, Rounding, Step
from modnorm.perturbation.methods import build_scale_map

MODEL = "6bfaca445597e8093f00705af9bd3f130de62450864a83993e263bcf977d9665"
"""Digest of the bundled model in published results, before `auto_map` was in its tokenizer."""
BASE = "a63be6391d58d7d95e26109109afa1296636ceed6501ff49e9b5623fd0d83697"
SENSITIVITIES = [{"attention_module": 2.0, "mlp_module": 0.5}] * 8
ALL_MOVE = "ad2d6621048dc22e87dab3f02eb73de776bb7df70589dfd2224d7201b9c82243"
"""Every tensor moves by the same coefficient."""
COEFFICIENT = 0.015625
STEPS = (Step("es", (3, 4), (0.5, -0.25), 0.0078125), Step("mezo", (5,), (1.5,), -0.00390625))


@pytest.fixture(scope="module")
def engine() -> Iterator[TransformersEngine]:
    with closing(TransformersEngine(resolve_checkpoint("tiny-thicket"))) as made:
        yield made


def scale_map_of(method: str, rank: int | None = None) -> ScaleMap:
    checkpoint = resolve_checkpoint("tiny-thicket")
    return build_scale_map(method, checkpoint, sensitivities=SENSITIVITIES, rank=rank)


def digest_of(engine: TransformersEngine, descriptor: Descriptor, scale_map: ScaleMap) -> str:
    with engine.candidate(descriptor, scale_map):
        return engine.weights_sha256()


@pytest.mark.parametrize(
    ("method", "digest"),
    [
        ("base", BASE),
        ("modular_norm", ALL_MOVE),
        ("randopt", ALL_MOVE),
        ("frobenius", ALL_MOVE),
        ("no_sensitivity", ALL_MOVE),
        ("no_recursive_scaling", ALL_MOVE),
        ("attention_only", "64e6b589a9c52996751bcf74a7e0f17a1bb2ca52beeed6a0e570b7bcfc108ff0"),
        (
            "attention_only_published",
            "ddd8e116350cffa0247536172484915a03f25c2d2372fcc900045f7c7979e404",
        ),
        ("mlp_only", "b61f75b0638904ff9b1954d1b079ae8c443ea3ed1b2fafbcb42fbb5860cb53d9"),
        ("rmsnorm_only", "5404ee0d426417caf5a64eae5bcc20b628fca1fa2c7bffec3723f8e42461f1e7"),
    ],
)
def test_a_resolved_candidate_has_the_digest_of_published_results(
    engine: TransformersEngine, method: str, digest: str
) -> None:
    scale_map = scale_map_of(method)
    coefficients = (COEFFICIENT,) * len(scale_map.active)
    descriptor = Descriptor("portable-v1", 7, method, 0.64, scale_map.digest, coefficients)
    assert digest_of(engine, descriptor, scale_map) == digest


@pytest.mark.parametrize(
    ("method", "radius", "geometry", "digest"),
    [
        (
            "randopt",
            0.016,
            "3c428e363d4bdc9c4afab0195802d2cafe4cf3b15a9b69acec88aab9ef573e1d",
            "da13efd238ab448f1e814b45fb6666c1a1b74f961eb862d83cf982491f83bbfc",
        ),
        (
            "es",
            0.006,
            "19f6b03f1394fc0ce380000f6695491ea5c70f9d42b362143e3d237ea6e14066",
            "c5c8f5d4af1d5f4025dded007fb064fe72a3b8f81bc44636b1832776be4d073b",
        ),
        (
            "mezo",
            0.004,
            "a70fc74954726043c40b07656793d1bfb1e38b66a5f278b7860f983d4bdedabc",
            "23dfa3f4b756c5a11d2a99329fa8750ac68e86c556d95ad7a8518fd771e4206c",
        ),
        (
            "zo_finetuner",
            0.004,
            "db0c47f6a31d10d7a9ee47635ef2701186c933963db30d8fe909dbe9d4a04d6d",
            "23dfa3f4b756c5a11d2a99329fa8750ac68e86c556d95ad7a8518fd771e4206c",
        ),
    ],
)
def test_isotropic_noise_has_the_digests_of_published_results(
    engine: TransformersEngine, method: str, radius: float, geometry: str, digest: str
) -> None:
    scale_map = scale_map_of(method)
    assert replace(scale_map, model_digest=MODEL).digest == geometry
    descriptor = Descriptor("portable-v1", 7, method, radius, scale_map.digest)
    assert digest_of(engine, descriptor, scale_map) == digest


@pytest.mark.parametrize(
    ("rank", "geometry", "digest", "same_coefficient"),
    [
        (
            1,
            "274d84ba30945e9c4c7c62b0c2ac14c4bdf911a0922b5de3e559880d545c8de2",
            "0dd836bf7bc6d9f789039d8c2a9feb3f1884abe10878d40cc55be6b646e94a17",
            "7ab131928962caf2fba15d303fefb1d14ac645ac716ded32341474655e677256",
        ),
        (
            16,
            "91606e40ebe174ecd71a838ef60daa195f0b670e5fd948cbf19610b8a5a1505d",
            "054b7712984018ffd6949e3ac77c3f150a7dacbfd962c87adf47363968433dda",
            "fd8f1166efa3b1942892c093e8e25085d291b2ee43309fd85d6efe487cb98fb6",
        ),
        (
            64,
            "c36254684c09a73bcd56a246aee7599c0df5f22e0880bc3817a554f2cdbd74d4",
            "70ff9841a0940c7f52c93219ffa75b163fd9103dda6eaade76332582d9394d13",
            "15b03ac1b9ade889926449023b1f39d56327bbca2b9861ab9f48949776b028af",
        ),
    ],
)
def test_low_rank_candidates_keep_their_digests(
    engine: TransformersEngine, rank: int, geometry: str, digest: str, same_coefficient: str
) -> None:
    isotropic, modular = scale_map_of("randopt", rank), scale_map_of("modular_norm", rank)
    assert replace(isotropic, model_digest=MODEL).digest == geometry
    descriptor = Descriptor("portable-v1", 7, "randopt", 0.012, isotropic.digest)
    assert digest_of(engine, descriptor, isotropic) == digest
    for scale_map in (isotropic, modular):
        resolved = Descriptor(
            "portable-v1",
            7,
            scale_map.method,
            1.0,
            scale_map.digest,
            (COEFFICIENT,) * len(scale_map.active),
        )
        assert digest_of(engine, resolved, scale_map) == same_coefficient


@pytest.mark.parametrize(
    ("rounding", "lineage_digest", "state", "candidate"),
    [
        (
            Rounding.ONCE,
            "2e4ef57af0bb20e516ec7b57fb910456b82845b108a19e85866841bb991d76cc",
            "10ef8524167b81ffdcbff2dcbbc6c14f3241d37501755f6f2935687aeab7b986",
            "02697291968a541f45cb66721e912b7cdb09f043c78f386751b3c4d2ca21fac5",
        ),
        (
            Rounding.PUBLISHED,
            "721591a019ee9c19cbd401feac4dcb12ebd9c9a1e71871f1f28b0dbe17c40063",
            "a47db731d39e2c2c275ed507e84c3338b3e955655f89812fe0176739e2649844",
            "562b968daab39946a9b9c9f8ba69daf6bc2ded4308b58104a962e964758a1d66",
        ),
    ],
)
def test_a_trained_state_has_the_digests_of_published_results(
    engine: TransformersEngine, rounding: Rounding, lineage_digest: str, state: str, candidate: str
) -> None:
    lineage = Lineage(engine.model_digest, "portable-v1", rounding, STEPS)
    scale_map = scale_map_of("es")
    engine.rebase(lineage)
    assert replace(lineage, model_digest=MODEL).digest == lineage_digest
    assert engine.weights_sha256() == state
    descriptor = Descriptor(
        "portable-v1", 9, "es", 0.006, scale_map.digest, lineage=lineage.digest
    )
    assert digest_of(engine, descriptor, scale_map) == candidate
    engine.rebase(None)
    assert engine.weights_sha256() == BASE
