from collections import defaultdict
from dataclasses import replace
from itertools import product
from statistics import fmean

import numpy as np
import pytest
import torch

from modnorm.checkpoint.pretrained import load_pretrained
from modnorm.checkpoint.reference import resolve_checkpoint
from modnorm.checkpoint.weights import CheckpointWeights
from modnorm.errors import CandidateError
from modnorm.noise import get_scheme
from modnorm.perturbation.descriptor import Descriptor
from modnorm.perturbation.sampling import population_seeds
from modnorm.radius.artifact import MatchingSettings, RadiusArtifact, objective, smallest
from modnorm.radius.displacement import DisplacementMeter
from modnorm.radius.functional_matching import MatchingPlan, choice_shares, match
from modnorm.spec import Masses
from tests.faults import error_at

SIGMA = 0.01
CPU = torch.device("cpu")
pytestmark = pytest.mark.usefixtures("on_cpu")


@pytest.fixture
def make_plan(prompts, scale_map):
    def make(checkpoint):
        return MatchingPlan(
            checkpoint=checkpoint,
            task="countdown",
            prompts=prompts,
            scale_map=scale_map(checkpoint, "no_sensitivity"),
            reference=scale_map(checkpoint, "randopt"),
            masses=Masses(),
            profile=None,
            sigma=SIGMA,
            radii=(0.05, 0.2, 0.8),
            settings=MatchingSettings(prompts=len(prompts), candidates=2, batch=2),
        )

    return make


@pytest.fixture
def plan(make_plan, checkpoint):
    return make_plan(checkpoint)


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "matching").mkdir()
    return tmp_path / "matching"


def perturbed(checkpoint, seed, sigma):
    """Add isotropic noise by hand, part by part."""
    model = load_pretrained(checkpoint, dtype=torch.float32, attention="eager").eval()
    parameters = dict(model.named_parameters())
    noise = get_scheme("portable-v1")
    for tensor in CheckpointWeights(checkpoint).layout:
        z = noise.sample(seed, tensor.name, tensor.shape, dtype=torch.float32, device=CPU)
        start = 0
        for part in tensor.parts:
            rows = z[start : start + part.rows].reshape(parameters[part.name].shape)
            parameters[part.name].data.add_(sigma * rows)
            start += part.rows
    return model


@torch.inference_mode()
def plain_displacement(base, other, prompts):
    """Measure one prompt at a time without padding, in float64, with literal sums."""
    kl, moved, length = [], 0.0, 0.0
    for prompt in prompts:
        ids = torch.tensor([prompt])
        one, two = (m(input_ids=ids, output_hidden_states=True) for m in (base, other))
        p, q = (out.logits[0, :-1].double().log_softmax(-1).numpy() for out in (one, two))
        kl += list(((np.exp(p) * (p - q)).sum(-1) + (np.exp(q) * (q - p)).sum(-1)) / 2)
        h, g = (out.hidden_states[-1][0, :-1].double().numpy() for out in (one, two))
        moved += float(((g - h) ** 2).sum())
        length += float((h**2).sum())
    return float(np.mean(kl)), float(np.sqrt(moved / length))


def test_figures_are_those_of_a_plain_float64_reference(plan, folder):
    document = match(plan, folder)
    base = load_pretrained(plan.checkpoint, dtype=torch.float32, attention="eager").eval()
    for candidate in document.reference.candidates:
        other = perturbed(plan.checkpoint, candidate.seed, SIGMA)
        kl, hidden = plain_displacement(base, other, plan.prompts)
        assert candidate.kl == pytest.approx(kl, rel=1e-3)
        assert candidate.hidden == pytest.approx(hidden, rel=1e-4)
    assert document.positions == 23
    assert document.reference.kl == np.mean([one.kl for one in document.reference.candidates])
    seeds = population_seeds(42, 100, "nested")[:2]
    for one in (document.reference, *document.radii):
        assert tuple(candidate.seed for candidate in one.candidates) == seeds
    displacements = [one.hidden for one in document.radii]
    assert displacements == sorted(displacements)
    assert RadiusArtifact.from_json(RadiusArtifact.of(document).to_json()).document == document


def test_isotropic_noise_matches_itself(plan, folder):
    radii = (SIGMA / 2, SIGMA, 2 * SIGMA)
    same = replace(plan, scale_map=plan.reference, radii=radii)
    document = match(same, folder)
    assert document.radius == SIGMA
    found = [one.objective for one in document.radii]
    assert found[1] == 0
    assert all(objective for objective in (found[0], found[2]))
    assert choice_shares(document) == [0, 1, 0]


@pytest.mark.parametrize("checkpoint", ["llama"], indirect=True)
def test_shares_of_resamples_are_those_of_all_equally_likely_draws(plan, folder):
    document = match(replace(plan, radii=(0.313, 0.326, 0.339)), folder)

    def mean(condition, drawn):
        kl = fmean([condition.candidates[index].kl for index in drawn])
        hidden = fmean([condition.candidates[index].hidden for index in drawn])
        return condition.model_copy(update={"kl": kl, "hidden": hidden})

    exact = defaultdict[float, float](float)
    for drawn in product(range(2), repeat=2):
        found = [
            (one.radius, objective(mean(one, drawn), mean(document.reference, drawn)))
            for one in document.radii
        ]
        exact[smallest(found)] += 1 / 4
    wanted = [exact[one.radius] for one in document.radii]
    assert len(exact) == 3
    assert choice_shares(document) == pytest.approx(wanted, abs=0.05)


@pytest.mark.parametrize("checkpoint", ["llama"], indirect=True)
class TestOneFamily:
    """Tests that do not depend on the family."""

    def test_an_interrupted_matching_resumes_and_gives_the_same_artifact(
        self, plan, folder, tmp_path
    ):
        (tmp_path / "whole").mkdir()
        whole = RadiusArtifact.of(match(plan, tmp_path / "whole"))

        def interrupt(step):
            if step.done == 3:
                raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            match(plan, folder, on_step=interrupt)
        (journal,) = folder.iterdir()
        kept = journal.read_bytes()
        assert len(kept.splitlines()) == 3
        journal.write_bytes(kept + b'{"scale_map": "half a li')
        again = RadiusArtifact.of(match(plan, folder))
        assert again == whole
        assert journal.read_bytes().startswith(kept)
        assert journal.read_bytes() == (tmp_path / "whole" / journal.name).read_bytes()

    def test_measurements_of_other_prompts_are_not_reused(self, plan, folder):
        match(plan, folder)
        other = replace(plan, prompts=[*plan.prompts[:-1], [4, 5]])
        match(other, folder)
        first, second = folder.glob("measurements-*.jsonl")
        assert len(first.read_text().splitlines()) == len(second.read_text().splitlines()) == 8

    def test_scales_that_rounding_removes_are_not_chosen(
        self, make_plan, checkpoint, folder, tmp_path
    ):
        model = load_pretrained(checkpoint, dtype=torch.bfloat16, attention="eager")
        model.save_pretrained(tmp_path / "bfloat16")
        plan = make_plan(resolve_checkpoint(str(tmp_path / "bfloat16")))
        document = match(replace(plan, radii=(1e-9, 0.2)), folder)
        assert document.radii[0].objective is None
        assert document.radius == 0.2
        assert document.environment["dtype"] == "bfloat16"
        assert document.environment["arithmetic"] == "float32"
        with error_at("sigma"):
            match(replace(plan, sigma=1e-9), folder)
        with error_at("radii"):
            match(replace(plan, radii=(1e-9,)), folder)

    def test_a_candidate_whose_outputs_overflow_is_named_and_leaves_the_base(self, plan):
        meter = DisplacementMeter(plan.checkpoint, plan.prompts, batch_size=2, device=CPU)
        isotropic = plan.reference
        usual = Descriptor("portable-v1", 3, "randopt", SIGMA, isotropic.digest)
        before = meter.displacement(usual, isotropic)
        with error_at("radii", "seed 3 at 2e", kind=CandidateError):
            meter.displacement(replace(usual, radius=2e38), isotropic)
        assert meter.displacement(usual, isotropic) == before
