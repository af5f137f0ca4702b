"""Nodes and channels that are dropped in training: these are ReLU, the others as without it."""

import copy

import pytest
import torch
from torch import Tensor
from torch.func import functional_call, grad, stack_module_state, vmap

from graphrelu import GReLU
from tests.helpers import batch_of_graphs, opened, outcome, random_graph, variant_of

VARIANTS = tuple("ABCDEFG")


def base(act: GReLU, x: Tensor) -> Tensor:
    return x if act.K == 1 else x.relu()


def dropped_parts(
    out: Tensor, kept: Tensor, dropped: Tensor, tolerance: float = 0.0
) -> tuple[Tensor, Tensor]:
    """Which nodes, and which channels, were dropped; everything else is as without dropout."""
    is_kept = (out - kept).abs() <= tolerance
    is_dropped = ~is_kept
    assert bool(((out - dropped).abs() <= tolerance)[is_dropped].all())
    nodes, channels = is_dropped.all(dim=-1), is_dropped.all(dim=-2)
    # Where a value is kept and dropped at once, as is rare, it counts as kept.
    away = (kept - dropped).abs() > tolerance
    assert torch.equal(is_dropped, (nodes.unsqueeze(-1) | channels.unsqueeze(-2)) & away)
    return nodes, channels


@pytest.mark.parametrize("batched", [False, True])
@pytest.mark.parametrize("variant", VARIANTS)
def test_a_node_or_channel_is_relu_or_as_without_dropout(variant: str, batched: bool) -> None:
    """Bit for bit: nothing is rescaled. Evaluation drops nothing, and neither do the
    coefficients of a module that trains."""
    edge_index, batch = batch_of_graphs([150, 50])
    graph = {"batch": batch} if batched else {}
    act, x = opened(variant_of(variant, 24, dropout=0.5)), torch.randn(200, 24)
    plain = variant_of(variant, 24)
    plain.load_state_dict(act.state_dict())
    without = plain(x, edge_index, **graph)
    assert torch.equal(act.eval()(x, edge_index, **graph), without)
    act.train()
    outs = [act(x, edge_index, **graph) for _ in range(2)]
    found = [dropped_parts(out, without, base(act, x)) for out in outs]
    for nodes, channels in found:
        assert 60 < int(nodes.sum()) < 140
        assert 2 < int(channels.sum()) < 22
    assert not torch.equal(found[0][0], found[1][0])
    assert not torch.equal(found[0][1], found[1][1])
    coefficients = (module.coefficients(x, edge_index, **graph) for module in (act, plain))
    assert all(map(torch.equal, *coefficients))
    assert torch.equal(act.gamma(x, edge_index, **graph), plain.gamma(x, edge_index, **graph))


def test_without_dropout_no_random_number_is_drawn() -> None:
    act, x, edge_index = opened(GReLU(4)), torch.randn(30, 4), random_graph(30, 90)
    before = torch.get_rng_state()
    act.train()(x, edge_index)
    assert torch.equal(torch.get_rng_state(), before)
    act.dropout = 0.5
    act(x, edge_index)
    assert not torch.equal(torch.get_rng_state(), before)


@pytest.mark.parametrize(("variant", "compiler"), [("A", "inductor"), ("G", "aot_eager")])
def test_dropout_compiles(variant: str, compiler: str) -> None:
    torch.compiler.reset()
    act = opened(variant_of(variant, 24, dropout=0.5)).double()
    compiled = torch.compile(act, fullgraph=True, backend=compiler)
    x, edge_index = torch.randn(100, 24, dtype=torch.double), random_graph(100, 300)
    without = act.eval()(x, edge_index)
    act.train()
    x.requires_grad_()
    outs = [compiled(x, edge_index) for _ in range(2)]
    found = [dropped_parts(out, without, x.relu(), 1e-10) for out in outs]
    for nodes, channels in found:
        assert 25 < int(nodes.sum()) < 75
        assert 2 < int(channels.sum()) < 22
    assert not torch.equal(found[0][0], found[1][0])
    for value in outcome(outs[0], [x, *act.parameters()]):
        assert bool(value.isfinite().all() & value.any())


@pytest.mark.parametrize("variant", ["A", "F", "G"])
def test_dropout_under_vmap(variant: str) -> None:
    """Each model drops nodes and channels of its own, or all drop the same ones."""
    acts = [opened(variant_of(variant, 24, dropout=0.5)).double() for _ in range(3)]
    parameters, _ = stack_module_state(acts)
    x, edge_index = torch.randn(3, 60, 24, dtype=torch.double), random_graph(60, 180)
    without = torch.stack([a.eval()(z, edge_index) for a, z in zip(acts, x, strict=True)])
    skeleton = copy.deepcopy(acts[0]).train()

    def run(p: dict[str, Tensor], x: Tensor) -> Tensor:
        return functional_call(skeleton, p, (x, edge_index))

    for randomness, differ in (("different", True), ("same", False)):
        out = vmap(run, randomness=randomness)(parameters, x)
        for mask in dropped_parts(out, without, x.relu(), 1e-10):
            assert 0 < int(mask.sum()) < mask.numel()
            assert bool((mask != mask[0]).any()) == differ

    def loss(p: dict[str, Tensor], x: Tensor) -> Tensor:
        return run(p, x).square().sum()

    grads = vmap(grad(loss), randomness="different")(parameters, x)
    for name, value in grads.items():
        assert bool(value.isfinite().all() & value.any()), name
