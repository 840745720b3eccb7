import pytest
import torch

from modnorm.calibration.calibrate import freeze
from modnorm.calibration.maps import PRE_NORM, capture, operator_norm

PROMPT = torch.tensor([[3, 1, 4, 1, 5, 9]])


def captured(model, layer):
    """Return the sites of a layer by metric, and the input of the next module."""
    frozen = freeze(model)
    follower = frozen.layers[layer + 1] if layer + 1 < len(frozen.layers) else frozen.final_norm
    block = frozen.layers[layer]
    watched = [block.get_submodule(path) for path in PRE_NORM.watched]
    *calls, after = capture(frozen.decoder, PROMPT, [*watched, follower])
    sites = PRE_NORM.sites(block, dict(zip(PRE_NORM.watched, calls, strict=True)))
    return dict(zip(PRE_NORM.metrics, sites, strict=True)), after.hidden


def value(site):
    with torch.no_grad():
        return site.function(site.at)


@pytest.mark.parametrize("layer", [0, 2])
def test_the_maps_compose_to_the_plain_forward(small_model, layer):
    sites, output = captured(small_model, layer)
    h, r = sites["block"].at, sites["mlp_residual"].at
    assert torch.equal(value(sites["input_norm"]), sites["attention_module"].at)
    assert torch.equal(h + value(sites["attention_module"]), r)
    assert torch.equal(value(sites["attention_residual"]), r)
    assert torch.equal(value(sites["post_attention_norm"]), sites["mlp_module"].at)
    assert torch.equal(r + value(sites["mlp_module"]), output)
    assert torch.equal(value(sites["mlp_residual"]), output)
    assert torch.equal(value(sites["block"]), output)


def test_attention_is_causal_at_the_captured_masks(small_model):
    site = captured(small_model, 1)[0]["attention_module"]
    moved = site.at.clone()
    moved[:, -1] += 1.0
    with torch.no_grad():
        before, after = site.function(site.at), site.function(moved)
    assert torch.equal(before[:, :-1], after[:, :-1])
    assert not torch.equal(before[:, -1], after[:, -1])


@pytest.mark.parametrize("metric", PRE_NORM.metrics)
def test_every_map_is_estimated_like_its_exact_jacobian(small_model, metric):
    site = captured(small_model.double(), 1)[0][metric]
    jacobian = torch.func.jacrev(site.function)(site.at).reshape(-1, site.at.numel())
    exact = torch.linalg.svdvals(jacobian)[0].item()
    converged = operator_norm(site.function, site.at, seed=7, iterations=300)
    assert converged == pytest.approx(exact, rel=1e-3)
    assert operator_norm(site.function, site.at, seed=7) <= exact * (1 + 1e-5)


def test_the_order_is_that_of_the_paper():
    assert PRE_NORM.metrics == (
        "input_norm",
        "post_attention_norm",
        "attention_module",
        "attention_residual",
        "mlp_module",
        "mlp_residual",
        "block",
    )
