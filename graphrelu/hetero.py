r"""GReLU for heterogeneous graphs: several types of nodes, several relations between them."""

from itertools import accumulate
from typing import Any

import torch
from torch import Tensor
from torch_geometric.nn.module_dict import ModuleDict

from graphrelu import functional
from graphrelu.functional import Edges
from graphrelu.graph import (
    DiffusionSettings,
    PreparedGraph,
    as_edges,
    check_edge_index,
    check_values,
    remembered,
)
from graphrelu.grelu import GReLU
from graphrelu.ops import values_on_cpu, without_autocast
from graphrelu.ops.apply import apply
from graphrelu.ops.project import project

Relation = tuple[str, str, str]
Relations = dict[Relation, Tensor]
# Arguments of GReLU that make no sense, or are not implemented, for several types of nodes.
NOT_FOR_TYPES = ("mode", "topology", "node_wise", "channel_wise")


class HeteroGReLU(torch.nn.Module):
    r""":class:`GReLU` on a heterogeneous graph.

    Each node type has its own channel block and projection. The projections of all types form
    one column, which is diffused over all relations together, as over one graph; the softmax of
    the node weights is over the nodes of all types. The cost stays linear in edges and nodes. A
    fresh module is exactly ReLU. With one node type it is :class:`GReLU` on the union of the
    relations.

    The channel block of a type sees
    :math:`\bar{\mathbf{e}}_t = \frac{1}{N_t} \sum_{n \in t} m_n \mathbf{x}_n`, where
    :math:`m = \mathbf{S}^\top \mathbf{1}` says how much of each node the diffusion passes on.

    Args:
        channels (dict): Node type -> size of its features.
        **options (optional): Arguments of :class:`GReLU`, the same for all types: `K`, `alpha`,
            `steps`, `diffusion`, `bias`, `dropout`, `scale`, `temperature`, `negative_slope`.

    Examples:
        >>> act = HeteroGReLU({"paper": 16, "author": 8})
        >>> x_dict = {"paper": torch.randn(3, 16), "author": torch.randn(2, 8)}
        >>> edge_index_dict = {("author", "writes", "paper"): torch.tensor([[0, 1], [2, 0]])}
        >>> out = act(x_dict, edge_index_dict)
        >>> torch.equal(out["author"], x_dict["author"].relu())  # until it is trained
        True
    """

    def __init__(self, channels: dict[str, int], **options: Any) -> None:
        super().__init__()
        if not isinstance(channels, dict) or not channels:
            raise ValueError(
                f"channels must be a dictionary from node types to sizes, got {channels!r}."
            )
        for name in NOT_FOR_TYPES:
            if name in options:
                raise ValueError(f"{name} must be left out: HeteroGReLU does not have it.")
        self.channels = dict(channels)
        self.acts = ModuleDict({name: GReLU(size, **options) for name, size in channels.items()})

    def reset_parameters(self) -> None:
        r"""Resets all learnable parameters of the module."""
        for act in self.acts.values():
            act.reset_parameters()

    def forward(
        self,
        x_dict: dict[str, Tensor],
        edge_index_dict: Relations,
        edge_weight_dict: Relations | None = None,
    ) -> dict[str, Tensor]:
        r"""
        Args:
            x_dict (dict): Node type -> features. Missing types have no nodes.
            edge_index_dict (dict): Relation, such as :obj:`("author", "writes", "paper")` -> edge
                indices.
            edge_weight_dict (dict, optional): Relation -> non-negative edge weights; a missing
                relation has weight one. (default: :obj:`None`)
        """
        edge_weight_dict = edge_weight_dict or {}
        self._check(x_dict, edge_index_dict, edge_weight_dict)
        sizes = {name: x.size(0) for name, x in x_dict.items()}
        acts: list[Any] = [self.acts[name] for name in x_dict]
        first = next(iter(x_dict.values()))
        form, logits, parameters = acts[0]._form, [], []
        with without_autocast(first):
            graph = self._graph(first, sizes, edge_index_dict, edge_weight_dict)
            masses = graph.mass.split(list(sizes.values()))
            for act, x, mass in zip(acts, x_dict.values(), masses, strict=True):
                own = act._weights(mass.dtype)
                projected, mean = project(x, own.node, mass)
                outputs = functional.channel_logits(mean, own.channel, own.bias, form.mode)
                parameters.append(functional.channel_parameters(outputs, act.channels, form))
                logits.append(projected)
            gammas = functional.weigh(graph.diffuse(torch.cat(logits)), form)
            weights, out = gammas.split(list(sizes.values())), {}
            for (name, x), gamma, channels in zip(x_dict.items(), weights, parameters, strict=True):
                if self.training and form.dropout > 0:
                    kept = functional.kept(gamma, x.size(0), x.size(1), form.dropout)
                    gamma, channels = gamma * kept.nodes, channels * kept.channels
                out[name] = apply(x, gamma, channels, form.base_slopes)
        return out

    def _check(
        self, x_dict: dict[str, Tensor], edge_index_dict: Relations, edge_weight_dict: Relations
    ) -> None:
        if not x_dict:
            raise ValueError("x_dict must have at least one node type, got none.")
        for name, x in x_dict.items():
            channels = self.channels.get(name)
            if channels is None:
                known = ", ".join(self.channels)
                raise ValueError(f"x_dict must have node types among {known}, got {name!r}.")
            if x.dim() != 2 or x.size(1) != channels:
                shape = f"must have shape [num_nodes, {channels}], got {list(x.shape)}"
                raise ValueError(f"x_dict[{name!r}] {shape}.")
        for relation, edge_index in edge_index_dict.items():
            if not {relation[0], relation[-1]} <= x_dict.keys():
                expected = "relations between node types of x_dict"
                raise ValueError(f"edge_index_dict must have {expected}, got {relation!r}.")
            check_edge_index(edge_index, f"edge_index_dict[{relation!r}]")
        for relation, weight in edge_weight_dict.items():
            if relation not in edge_index_dict:
                raise ValueError(
                    f"edge_weight_dict must have relations of edge_index_dict, got {relation!r}."
                )
            if weight.shape != edge_index_dict[relation][0].shape:
                shape = f"one weight per edge, got shape {list(weight.shape)}"
                raise ValueError(f"edge_weight_dict[{relation!r}] must have {shape}.")

    def _graph(
        self, x: Tensor, sizes: dict[str, int], edge_index_dict: Relations, weight_dict: Relations
    ) -> PreparedGraph:
        """All relations as one graph, with the nodes of one type after those of the other."""
        act: GReLU = self.acts[next(iter(sizes))]
        ends = list(accumulate(sizes.values(), initial=0))
        first = dict(zip(sizes, ends, strict=False))
        dtype = torch.promote_types(x.dtype, torch.float32)

        def union() -> Edges:
            moved = [torch.empty(2, 0, dtype=torch.long, device=x.device)]
            weights = [torch.empty(0, dtype=dtype, device=x.device)]
            for relation, own in edge_index_dict.items():
                if own.numel() > 0 and values_on_cpu(own):
                    _check_range(relation, own, sizes)
                moved.append(own + own.new_tensor([[first[relation[0]]], [first[relation[-1]]]]))
                weight = weight_dict.get(relation)
                weights.append(x.new_ones(own.size(1)) if weight is None else weight)
            edges = as_edges(torch.cat(moved, dim=1), torch.cat(weights), ends[-1], dtype)
            check_values(edges, None)
            return edges

        settings = DiffusionSettings(act.alpha, act.steps, act.diffusion)
        parts = [*edge_index_dict.values(), *weight_dict.values()]
        names = tuple(sizes.items()), tuple(edge_index_dict), tuple(weight_dict)
        return remembered(parts, (*names, dtype), settings, union)

    def __repr__(self) -> str:
        return f"{self.__class__.__name__}({self.channels})"


def _check_range(relation: Relation, edge_index: Tensor, sizes: dict[str, int]) -> None:
    for name, ends in zip((relation[0], relation[-1]), edge_index, strict=True):
        low, high = int(ends.min()), int(ends.max())
        if low < 0 or high >= sizes[name]:
            raise ValueError(
                f"edge_index_dict[{relation!r}] must hold indices between 0 and "
                f"{sizes[name] - 1}, the nodes of {name!r}, got {low if low < 0 else high}."
            )
