"""Graphs, modules and features to try, as plain numbers: what Hypothesis prints of a failure can be
pasted into an ``@example``."""

from typing import Any, NamedTuple

import torch
from hypothesis import strategies as st
from torch import Tensor

from graphrelu import GReLU
from graphrelu.functional import DIFFUSIONS
from graphrelu.grelu import VARIANTS
from tests.helpers import OTHER, SHARP, opened, variant_of

# Relative to the largest entry of what is expected, computed in float64.
TOLERANCE = {torch.float64: 1e-9, torch.float32: 1e-4, torch.bfloat16: 1e-2, torch.float16: 2e-3}
CONSTANTS: list[dict[str, Any]] = [{}, OTHER, SHARP]
LOW_PRECISION = [torch.float32, torch.bfloat16, torch.float16]


class Graph(NamedTuple):
    """Several graphs as a batch, or one: with loops, duplicates, components and isolated nodes."""

    sizes: tuple[int, ...]
    edges: tuple[tuple[int, int], ...] = ()
    weights: tuple[float, ...] | None = None
    undirected: bool = False
    batched: bool = False

    @property
    def num_nodes(self) -> int:
        return sum(self.sizes)

    @property
    def edge_index(self) -> Tensor:
        edge_index = torch.tensor(self.edges, dtype=torch.long).view(-1, 2).t()
        return torch.cat([edge_index, edge_index.flip(0)], dim=1) if self.undirected else edge_index

    @property
    def edge_weight(self) -> Tensor | None:
        if self.weights is None:
            return None
        weight = torch.tensor(self.weights, dtype=torch.double)
        return weight.repeat(2) if self.undirected else weight

    @property
    def batch(self) -> Tensor | None:
        if not self.batched:
            return None
        sizes = torch.tensor(self.sizes, dtype=torch.long)
        return torch.repeat_interleave(torch.arange(len(sizes)), sizes)

    def arguments(self) -> dict[str, Any]:
        """Of a call of a module, besides the features."""
        names = "edge_index", "edge_weight", "batch"
        batch_size = len(self.sizes) if self.batched else None
        return {**{name: getattr(self, name) for name in names}, "batch_size": batch_size}


class Setup(NamedTuple):
    """A module that has left its start, and its features."""

    variant: str = "A"
    channels: int = 3
    options: dict[str, Any] = {}  # noqa: RUF012 (never changed)
    moved: float = 0.3  # how far from the start
    parameter_scale: float = 1.0
    features: str = "normal"
    feature_scale: float = 1.0
    seed: int = 0

    def module(self) -> GReLU:
        torch.manual_seed(self.seed)
        act = opened(variant_of(self.variant, self.channels, **self.options), self.moved)
        for parameter in act.parameters():
            parameter.data *= self.parameter_scale
        return act

    def x(self, num_nodes: int, dtype: torch.dtype = torch.double) -> Tensor:
        generator = torch.Generator().manual_seed(self.seed)
        shape = (num_nodes, self.channels)
        if self.features == "integers":
            x = torch.randint(-2, 3, shape, generator=generator).double()
        elif self.features == "zeros":
            x = torch.zeros(shape, dtype=torch.double)
        else:
            x = torch.randn(shape, generator=generator, dtype=torch.double)
        return (self.feature_scale * x).to(dtype).requires_grad_()


@st.composite
def graphs(draw: st.DrawFn, batched: bool | None = None, undirected: bool | None = None) -> Graph:
    batched = draw(st.booleans()) if batched is None else batched
    undirected = draw(st.booleans()) if undirected is None else undirected
    few = st.lists(st.integers(0, 4), max_size=4)
    sizes = draw(few) if batched else [draw(st.integers(0, 9))]
    starts = [sum(sizes[:i]) for i in range(len(sizes))]
    blocks = [st.integers(a, a + n - 1) for a, n in zip(starts, sizes, strict=True) if n > 0]
    pairs = st.one_of([st.tuples(nodes, nodes) for nodes in blocks]) if blocks else st.nothing()
    edges = draw(st.lists(pairs, max_size=14)) if blocks else []
    weights = None
    if draw(st.booleans()):
        weight = st.one_of(st.just(0.0), st.floats(1e-3, 1e3))
        weights = tuple(draw(st.lists(weight, min_size=len(edges), max_size=len(edges))))
    return Graph(tuple(sizes), tuple(edges), weights, undirected, batched)


@st.composite
def setups(draw: st.DrawFn, largest: float = 1e3) -> Setup:
    variant = draw(st.sampled_from(sorted(VARIANTS)))
    options: dict[str, Any] = {
        "mode": draw(st.sampled_from(["calibrated", "paper"])),
        "alpha": draw(st.sampled_from([0.05, 0.1, 0.5, 1.0])),
        "steps": draw(st.integers(1, 12)),
        "diffusion": draw(st.sampled_from(DIFFUSIONS)),
    }
    if "K" not in VARIANTS[variant]:
        options["K"] = draw(st.integers(1, 4))
    if options["mode"] == "calibrated":
        options |= draw(st.sampled_from(CONSTANTS))
        options["negative_slope"] = draw(st.sampled_from([0.0, 0.2, -0.5, 1.0]))
    return Setup(
        variant,
        draw(st.integers(1, 5)),
        options,
        moved=draw(st.sampled_from([0.3, 1.0, 0.0])),
        parameter_scale=draw(st.sampled_from([1.0, 3.0])),
        features=draw(st.sampled_from(["normal", "integers", "zeros"])),
        feature_scale=draw(st.sampled_from([s for s in (1.0, 1e-3, 10.0, 1e3) if s <= largest])),
        seed=draw(st.integers(0, 2**16)),
    )


@st.composite
def cases(
    draw: st.DrawFn, batched: bool | None = None, largest: float = 1e3
) -> tuple[Graph, Setup]:
    return draw(graphs(batched)), draw(setups(largest))
