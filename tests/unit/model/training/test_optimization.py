"""Muon and AdamW: which weights each of them updates, and how."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import Tensor, nn

from model.bundle.config import preset
from model.data.recipe_sections import Optimization
from model.network.transformer import Transformer
from model.training.muon import Muon, orthogonalized
from model.training.optimization import Optimizers, layer_matrices, make_optimizer

CPU = torch.device("cpu")


def network() -> Transformer:
    sizes = {"d_model": 16, "ffn_dim": 32, "num_heads": 2}
    return Transformer(preset("tiny", 40, num_encoder_layers=2, num_decoder_layers=1, **sizes))


def options(**changes: object) -> Optimization:
    return Optimization.model_validate({"max_updates": 10, "learning_rate": 1e-3, **changes})


def random_matrix(*shape: int) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(1))


@pytest.mark.parametrize("shape", [(24, 96), (96, 24), (64, 48)])
@pytest.mark.parametrize("scale", [1e-6, 1.0, 1e4])
def test_an_orthogonalized_matrix_keeps_its_directions_and_makes_them_alike(
    shape: tuple[int, int], scale: float
) -> None:
    matrix = scale * random_matrix(*shape)
    [found] = orthogonalized(matrix[None])
    sizes = torch.linalg.svdvals(found)
    assert found.shape == matrix.shape
    assert 0.65 < float(sizes.min()) <= float(sizes.max()) < 1.25
    left, _, right = torch.linalg.svd(matrix, full_matrices=False)
    # U^T O V is diagonal: no direction became another one.
    inner = left.T @ found @ right.T
    assert float((inner - inner.diagonal().diag()).abs().max()) < 1e-3


def test_a_gradient_of_zero_changes_nothing() -> None:
    assert torch.equal(orthogonalized(torch.zeros(1, 4, 8)), torch.zeros(1, 4, 8))


@pytest.mark.parametrize("bf16", [False, True])
@pytest.mark.parametrize("shape", [(16, 64), (64, 16), (32, 32)])
def test_muon_is_that_of_pytorch(shape: tuple[int, int], bf16: bool) -> None:
    """PyTorch's rounds to bfloat16, so that weights differ by some thousandths of the updates."""
    ours, theirs = (nn.Parameter(random_matrix(*shape)) for _ in range(2))
    own = Muon([ours], lr=0.1, momentum=0.9, weight_decay=0.05)
    reference = torch.optim.Muon(
        [theirs], lr=0.1, momentum=0.9, weight_decay=0.05, adjust_lr_fn="match_rms_adamw"
    )
    generator = torch.Generator().manual_seed(2)
    for _ in range(5):
        ours.grad = torch.randn(shape, generator=generator)
        theirs.grad = ours.grad.clone()
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=bf16):
            own.step()
        reference.step()  # type: ignore[no-untyped-call]
    moved = float((theirs.detach() - random_matrix(*shape)).norm())
    assert float((ours - theirs).detach().norm()) < 0.03 * moved
    assert ours.dtype == torch.float32


def test_an_update_of_muon_is_as_large_as_one_of_adamw() -> None:
    for shape in ((16, 64), (64, 16), (32, 32)):
        weight = nn.Parameter(torch.zeros(shape))
        weight.grad = random_matrix(*shape)
        Muon([weight], lr=1.0, momentum=0.95, weight_decay=0.0).step()
        assert 0.15 < float(weight.detach().square().mean().sqrt()) < 0.25


def test_muon_updates_the_matrices_of_the_layers_and_adamw_all_other_weights() -> None:
    model = network()
    adamw, muon = (part for part, _ in make_optimizer(model, options(optimizer="muon"), CPU).parts)
    assert isinstance(adamw, torch.optim.AdamW)
    assert isinstance(muon, Muon)
    names = {id(weight): name for name, weight in model.named_parameters()}
    of_muon, of_adamw = (
        [names[id(w)] for group in part.param_groups for w in group["params"]]
        for part in (muon, adamw)
    )
    assert sorted([*of_muon, *of_adamw]) == sorted(names.values())
    layers = [name for name in names.values() if name.startswith(("encoder.", "decoder."))]
    assert set(of_muon) == {n for n in layers if n.endswith("weight") and "norm" not in n}
    # Four projections and two maps of an encoder layer; a decoder layer has four projections more.
    assert len(of_muon) == len(layer_matrices(model)) == 2 * 6 + 10


def test_each_part_has_a_learning_rate_of_its_own() -> None:
    recipe = options(optimizer="muon", muon_learning_rate=5e-3)
    optimizer = make_optimizer(network(), recipe, CPU)
    optimizer.set_learning_rate(1e-4)  # a tenth of the peak
    rates = [group["lr"] for part, _ in optimizer.parts for group in part.param_groups]
    assert rates == [1e-4, pytest.approx(5e-4)]
    alone = make_optimizer(network(), options(), CPU)
    assert [type(part) for part, _ in alone.parts] == [torch.optim.AdamW]


def updated(optimizer: Optimizers, model: Transformer, updates: int, seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    for _ in range(updates):
        for weight in model.parameters():
            weight.grad = torch.randn(weight.shape, generator=generator)
        optimizer.set_learning_rate(1e-2)
        optimizer.step()
        optimizer.zero_grad()


@pytest.mark.parametrize("name", ["adamw", "muon"])
def test_an_optimizer_goes_on_from_its_state(name: str) -> None:
    one, other = network(), network()
    first = make_optimizer(one, options(optimizer=name), CPU)
    updated(first, one, 3, seed=1)
    second = make_optimizer(other, options(optimizer=name), CPU)
    other.load_state_dict(one.state_dict())
    second.load_state_dict(copy.deepcopy(first.state_dict()))
    for optimizer, model in ((first, one), (second, other)):
        updated(optimizer, model, 3, seed=2)
    for left, right in zip(one.parameters(), other.parameters(), strict=True):
        assert torch.equal(left, right)


def test_muon_finds_the_solution_of_a_least_squares_problem() -> None:
    weight = nn.Parameter(torch.zeros(8, 16))
    goal, inputs = random_matrix(8, 16), random_matrix(64, 16)
    muon = Muon([weight], lr=0.1, momentum=0.9, weight_decay=0.0)
    losses = []
    for step in range(200):
        muon.param_groups[0]["lr"] = 0.3 * (1 - step / 200)
        loss = (inputs @ (weight - goal).T).square().mean()
        (weight.grad,) = torch.autograd.grad(loss, [weight])
        muon.step()
        losses.append(float(loss.detach()))
    assert losses[-1] < 1e-3 * losses[0]
