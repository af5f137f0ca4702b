"""HeteroGReLU beside the equations, put together anew, on random graphs cut into types of nodes."""

from itertools import pairwise
from typing import Any, NamedTuple

import torch
from hypothesis import example, given
from hypothesis import strategies as st
from torch import Tensor

from graphrelu import HeteroGReLU, functional
from graphrelu.functional import DIFFUSIONS
from tests.helpers import diffused, opened
from tests.property.comparison import assert_near
from tests.property.strategies import CONSTANTS, Graph, graphs

Relation = tuple[str, str, str]


class Types(NamedTuple):
    """The nodes of a graph as up to three types, one after the other; some may be empty."""

    graph: Graph
    sizes: tuple[int, ...]
    channels: tuple[int, ...]
    options: dict[str, Any]
    seed: int

    def module(self) -> HeteroGReLU:
        torch.manual_seed(self.seed)
        names = map(str, range(len(self.sizes)))
        act = HeteroGReLU(dict(zip(names, self.channels, strict=True)), **self.options)
        for own in act.acts.values():
            opened(own)
        return act.double()

    def x_dict(self) -> dict[str, Tensor]:
        generator = torch.Generator().manual_seed(self.seed)
        shapes = enumerate(zip(self.sizes, self.channels, strict=True))
        x = {str(i): torch.randn(shape, generator=generator).double() for i, shape in shapes}
        return {name: own.requires_grad_() for name, own in x.items()}

    def relations(self) -> tuple[dict[Relation, Tensor], dict[Relation, Tensor] | None]:
        """The edges by the types of their ends, and their weights."""
        sizes = torch.tensor(self.sizes)
        first = torch.cat([sizes.new_zeros(1), sizes.cumsum(0)[:-1]])
        type_of = torch.repeat_interleave(torch.arange(len(sizes)), sizes)
        ends = type_of[self.graph.edge_index]
        edges, weights = {}, {}
        for source, target in ends.unique(dim=1).t().tolist():
            mine = (ends[0] == source) & (ends[1] == target)
            relation = (str(source), "to", str(target))
            edges[relation] = self.graph.edge_index[:, mine] - first[[source, target]].view(2, 1)
            if self.graph.edge_weight is not None:
                weights[relation] = self.graph.edge_weight[mine]
        return edges, weights or None


@st.composite
def types(draw: st.DrawFn) -> Types:
    graph = draw(graphs(batched=False))
    cuts = sorted(draw(st.lists(st.integers(0, graph.num_nodes), max_size=2)))
    sizes = tuple(b - a for a, b in pairwise([0, *cuts, graph.num_nodes]))
    channels = draw(st.lists(st.integers(1, 4), min_size=len(sizes), max_size=len(sizes)))
    options = {
        "K": draw(st.integers(2, 4)),
        "alpha": draw(st.sampled_from([0.05, 0.1, 0.5])),
        "steps": draw(st.integers(1, 12)),
        "diffusion": draw(st.sampled_from(DIFFUSIONS)),
        "negative_slope": draw(st.sampled_from([0.0, 0.2])),
        **draw(st.sampled_from(CONSTANTS)),
    }
    return Types(graph, sizes, tuple(channels), options, draw(st.integers(0, 2**16)))


def expected_of(act: HeteroGReLU, x_dict: dict[str, Tensor], graph: Graph) -> list[Tensor]:
    """One diffusion of all projections; a mean for each type; a softmax over all nodes."""
    acts, sizes = [act.acts[name] for name in x_dict], [x.size(0) for x in x_dict.values()]
    own, form = acts[0], acts[0]._form
    settings = own.alpha, own.steps, own.diffusion
    identity = torch.eye(graph.num_nodes, dtype=torch.double)
    operator = diffused(identity, graph.edge_index, graph.edge_weight, *settings)
    logits = [x @ act.acts[name].node_mlp.weight.to(x.dtype).t() for name, x in x_dict.items()]
    gamma = functional.weigh(operator @ torch.cat(logits), form)
    out = []
    by_type = gamma.split(sizes), operator.sum(dim=0).split(sizes)
    for one, x, weights, mass in zip(acts, x_dict.values(), *by_type, strict=True):
        mean = (mass @ x).view(1, -1) / max(1, x.size(0))
        logits = functional.channel_logits(mean, *one.channel_mlp.parameters(), form.mode)
        parameters = functional.channel_parameters(logits, one.channels, form)
        coefficients = functional.coefficients(weights, parameters, form.base_slopes)
        out.append(functional.piecewise_max(x, *coefficients))
    return out


@given(case=types())
def test_module_is_the_equations(case: Types) -> None:
    act, x_dict = case.module(), case.x_dict()
    inputs = [*x_dict.values(), *act.parameters()]
    out = list(act(x_dict, *case.relations()).values())
    expected = expected_of(act, x_dict, case.graph)
    found = torch.autograd.grad(out, inputs, [x.detach() for x in x_dict.values()])
    exact = torch.autograd.grad(expected, inputs, [x.detach() for x in x_dict.values()])
    for one, other in zip([*out, *found], [*expected, *exact], strict=True):
        assert_near(one, other, 1e-9, scale=1.0)


@given(case=types())
# The graph that was remembered was that of another order.
@example(case=Types(Graph((2,), ((0, 0),)), (1, 1), (1, 1), {"steps": 1}, seed=0))
def test_order_of_types_and_relations_does_not_matter(case: Types) -> None:
    act, x_dict = case.module(), case.x_dict()
    edges, weights = case.relations()
    out = act(x_dict, edges, weights)
    backwards = act(dict(reversed(x_dict.items())), dict(reversed(edges.items())), weights)
    for name, own in out.items():
        assert_near(backwards[name], own, 1e-9)
