import pytest

from modnorm.radius.artifact import RadiusArtifact
from modnorm.radius.objective import mean
from modnorm.radius.schema import (
    Candidate,
    GridDocument,
    GridRadius,
    GridSettings,
    GridTrial,
    MatchedCondition,
    MatchingDocument,
    MatchingSettings,
    MethodSubject,
    Reference,
    Subject,
    objective,
)
from modnorm.spec import DataSpec, EngineSpec, Masses

MODEL = Subject(name="somebody/Small", revision=None, digest="a" * 64)


def _method(name):
    return MethodSubject(name=name, masses=Masses(), profile=None, scale_map="b" * 64)


@pytest.fixture
def make_grid():
    """Make the artifact of a grid from the metrics of each radius under seeds 39, 40, ..."""

    def make(metrics, chosen, *, method="randopt", task="countdown"):
        seeds = tuple(39 + index for index in range(len(next(iter(metrics.values())))))
        document = GridDocument(
            model=MODEL,
            task=task,
            method=_method(method),
            radius=chosen,
            settings=GridSettings(
                population=4,
                ensemble_size=2,
                seeds=seeds,
                pool="nested",
                noise="portable-v1",
                scorer="countdown-v1",
                max_tokens=None,
                engine=EngineSpec(),
                selection=DataSpec(source="s.jsonl"),
                selection_digest="c" * 64,
                development=DataSpec(source="d.jsonl"),
                development_digest="d" * 64,
            ),
            radii=tuple(
                GridRadius(
                    radius=radius,
                    mean=mean(values),
                    trials=tuple(
                        GridTrial(seed=seed, metric=value)
                        for seed, value in zip(seeds, values, strict=True)
                    ),
                )
                for radius, values in sorted(metrics.items())
            ),
        )
        return RadiusArtifact.of(document)

    return make


def _condition(kind, radius, figures, **more):
    candidates = tuple(
        Candidate(seed=seed, kl=kl, hidden=hidden, hidden_rms=hidden, states=(hidden,))
        for seed, (kl, hidden) in enumerate(figures)
    )
    means = {
        name: mean([getattr(one, name) for one in candidates])
        for name in ("kl", "hidden", "hidden_rms")
    }
    return kind(radius=radius, candidates=candidates, **means, **more)


@pytest.fixture
def make_matching():
    """Make the artifact of a matching: (KL, hidden) of each candidate, by radius."""

    def make(reference, radii, chosen):
        iso = _condition(Reference, 0.0005, reference, scale_map="e" * 64)
        found = []
        for radius, figures in sorted(radii.items()):
            plain = _condition(MatchedCondition, radius, figures, objective=None)
            found.append(plain.model_copy(update={"objective": objective(plain, iso)}))
        document = MatchingDocument(
            model=MODEL,
            task="countdown",
            method=_method("modular_norm"),
            radius=chosen,
            settings=MatchingSettings(prompts=2, candidates=len(reference)),
            prompts_sha256="f" * 64,
            positions=10,
            environment={"device": "cpu"},
            reference=iso,
            radii=tuple(found),
        )
        return RadiusArtifact.of(document)

    return make
