r"""A piecewise-affine diffeomorphism (CPAB) as an activation, in closed form.

A velocity field on :math:`[0, 1]`, continuous and affine in each of :math:`n` cells, zero at both
ends, moves every point for one unit of time. Inside a cell the movement is an exponential; how long
a whole cell takes is known beforehand, so that a point needs three steps however many cells it
crosses: to the edge of its cell, to the edge of its last cell by the clock, and the rest.
"""

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.nn import Linear
from torch_geometric.utils import scatter

from graphrelu.graph import PreparedGraph
from graphrelu.lab.models.graph_activation import GraphActivation

CELLS = 16  # of the velocity field
RADIUS = 5.0  # half the width of the interval
HIDDEN = 16  # width of the GNN
# What is slower than this, in itself or beside its speed at the other end, does not arrive in time.
_STANDSTILL = 1e-12
# Whatever takes longer than one unit of time is not finished; it is kept finite to be added up.
_TOO_LONG = 2.0
_NEAR = 1e-2  # where a quotient is replaced by its series


class DiGRAF(GraphActivation):
    r"""The activation of the `"DiGRAF: Diffeomorphic Graph-Adaptive Activation Function"
    <https://arxiv.org/abs/2407.02013>`_ paper: one diffeomorphism of :math:`[-5, 5]` for all nodes
    and channels of a graph, the identity outside, with parameters that a GNN finds.

    .. math::
        \boldsymbol{\theta} = \tanh \left( \textrm{MLP} \left( \frac{1}{|\mathcal{V}|}
        \mathbf{1}^{\top} \textrm{GCN}(\max(\textrm{GCN}(\mathbf{X}), 0)) \right) \right)

    The penalty on the velocities that the paper may add to the loss is left out.

    Args:
        channels (int): Size of each input and output sample.
    """

    def __init__(self, channels: int) -> None:
        super().__init__(channels)
        self.first = Linear(channels, HIDDEN)
        self.second = Linear(HIDDEN, HIDDEN)
        self.third = Linear(HIDDEN, HIDDEN // 2)
        self.last = Linear(HIDDEN // 2, CELLS - 1)

    def reset_parameters(self) -> None:
        r"""Resets all learnable parameters of the module."""
        for layer in self.children():
            layer.reset_parameters()  # type: ignore[operator]

    def activate(
        self, x: Tensor, graph: PreparedGraph, batch: Tensor | None, batch_size: int
    ) -> Tensor:
        hidden = (graph.diffuse(x @ self.first.weight.t()) + self.first.bias).relu()
        # The second propagation is only there to be averaged: its masses suffice.
        if batch is None:
            mean = (graph.mass @ hidden).view(1, -1) / max(x.size(0), 1)
        else:
            mean = scatter(graph.mass.view(-1, 1) * hidden, batch, 0, batch_size, "mean")
        for layer in (self.second, self.third, self.last):
            mean = layer(mean.relu() if layer is self.last else mean)
        return diffeomorphism(x, mean.tanh(), batch)


def diffeomorphism(x: Tensor, theta: Tensor, graph: Tensor | None = None) -> Tensor:
    """:func:`cpab` of the interval; outside nothing moves."""
    unit = (x.to(theta.dtype) + RADIUS) / (2 * RADIUS)
    inside = (unit > 0) & (unit < 1)
    moved = cpab(torch.where(inside, unit, 0.5), theta, graph)
    return torch.where(inside, 2 * RADIUS * moved - RADIUS, x).to(x.dtype)


def velocities(theta: Tensor) -> Tensor:
    r"""The velocities `[G, n + 1]` at the cells' edges, from parameters `[G, n - 1]`.

    :math:`v_j = \frac{j}{n} \sum_{k \geq j} \theta_k / k`, and zero at both ends: the basis
    :obj:`"rref"` of the package `difw`, each of whose functions rises from 0 to edge :math:`k` and
    is back at zero one cell later.
    """
    edge = torch.arange(1, theta.size(1) + 1, dtype=theta.dtype, device=theta.device)
    basis = (edge.view(1, -1) / edge.view(-1, 1)).tril() / (theta.size(1) + 1)
    return F.pad(theta @ basis, (1, 1))


def cpab(u: Tensor, theta: Tensor, graph: Tensor | None = None) -> Tensor:
    """The points `u` `[N, C]` of the unit interval, moved for one unit of time.

    Args:
        u (torch.Tensor): The points.
        theta (torch.Tensor): The parameters `[G, n - 1]` of the velocity fields.
        graph (torch.Tensor, optional): The velocity field of each row of `u`; there must be only
            one unless given. (default: :obj:`None`)
    """
    v = velocities(theta)
    n = v.size(1) - 1
    slope = n * v.diff(dim=1)
    clock = F.pad(_crossing(v[:, :-1], v[:, 1:], 1 / n).clamp(max=_TOO_LONG).cumsum(1), (1, 0))
    v, slope, clock = (  # of each row
        table.expand(len(u), -1) if graph is None else table.index_select(0, graph)
        for table in (v, slope, clock)
    )

    edge = torch.arange(n + 1, dtype=u.dtype, device=u.device) / n
    cell = (u.detach() * n).long().clamp(0, n - 1)
    own_slope = slope.gather(1, cell)
    velocity = v.gather(1, cell) + own_slope * (u - edge[cell])
    right = velocity.detach() > 0
    out_at = cell + right.long()
    wait = _crossing(velocity, v.gather(1, out_at), (edge[out_at] - u).abs())
    leaves = wait.detach() < 1

    out_time = clock.gather(1, out_at)
    with torch.no_grad():
        arrival = out_time + torch.where(right, 1 - wait, wait - 1)
        last = torch.searchsorted(clock[:, 1:n].contiguous(), arrival, right=True)
        last = torch.where(right, last, torch.minimum(last, cell - 1)).clamp(min=0)
        begin = last + (~right).long()
    rest = 1 - wait - (clock.gather(1, begin) - out_time).abs()

    point = torch.where(leaves, edge[begin], u)
    velocity = torch.where(leaves, v.gather(1, begin), velocity)
    own_slope = torch.where(leaves, slope.gather(1, last), own_slope)
    time = torch.where(leaves, rest, 1.0)
    return point + velocity * time * _exp_quotient(own_slope * time)


def _crossing(velocity: Tensor, at_end: Tensor, distance: Tensor | float) -> Tensor:
    """The time to an end where the velocity is another, changing evenly on the way."""
    with torch.no_grad():
        moves = velocity.abs() > _STANDSTILL
        ratio = at_end / torch.where(moves, velocity, 1.0)
        arrives = moves & (ratio > _STANDSTILL) & (ratio < 1 / _STANDSTILL)
    velocity = torch.where(arrives, velocity, 1.0)
    ratio = torch.where(arrives, at_end, 1.0) / velocity
    return torch.where(arrives, distance / velocity.abs() * _log_quotient(ratio), _TOO_LONG)


def _exp_quotient(z: Tensor) -> Tensor:
    """(e^z - 1) / z."""
    near = z.detach().abs() < _NEAR
    series = 1 + z * (1 / 2 + z * (1 / 6 + z * (1 / 24 + z / 120)))
    far = torch.where(near, 1.0, z)
    return torch.where(near, series, far.expm1() / far)


def _log_quotient(ratio: Tensor) -> Tensor:
    """log(r) / (r - 1)."""
    z = ratio - 1
    near = z.detach().abs() < _NEAR
    series = 1 + z * (-1 / 2 + z * (1 / 3 + z * (-1 / 4 + z * (1 / 5 - z / 6))))
    far = torch.where(near, 2.0, ratio)
    return torch.where(near, series, far.log() / (far - 1))
