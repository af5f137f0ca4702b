"""GReLU written from the paper with nested loops over scalars: slow, and easy to compare with it.

Only the parameters are taken from a module; nothing of the library computes here.
"""

from math import sqrt

import torch
from torch import Tensor

from graphrelu import GReLU

Matrix = list[list[Tensor]]


def diffused(x: Tensor, edges: Tensor, weight: Tensor, act: GReLU) -> Matrix:
    """Power iteration for alpha (I - (1 - alpha) D^-1/2 A D^-1/2)^-1 X."""
    N, C = x.shape
    A = [[0.0] * N for _ in range(N)]
    for (source, target), w in zip(edges.t().tolist(), weight.tolist(), strict=True):
        A[target][source] += w
    if act.add_self_loops:
        for n in range(N):
            A[n][n] = A[n][n] if A[n][n] > 0 else 1.0
    degree = [sum(row) for row in A]
    e = [[x[n, c] for c in range(C)] for n in range(N)]
    for _ in range(act.steps):
        previous = e
        e = []
        for n in range(N):
            row = []
            for c in range(C):
                total = act.alpha * x[n, c]
                for m in range(N):
                    if A[n][m] and degree[m]:
                        normalized = A[n][m] / sqrt(degree[n] * degree[m])
                        total = total + (1 - act.alpha) * normalized * previous[m][c]
                row.append(total)
            e.append(row)
    return e


def mlp(layers: torch.nn.Module, inputs: list[Tensor]) -> list[Tensor]:
    linears = [layers.first] if layers.last is None else [layers.first, layers.last]
    for depth, linear in enumerate(linears):
        outputs = []
        for o in range(linear.out_features):
            total = linear.bias[o] if linear.bias is not None else torch.tensor(0.0)
            for i, value in enumerate(inputs):
                total = total + linear.weight[o, i] * value
            last = depth + 1 == len(linears)
            outputs.append(total if last or total > 0 else total * 0)
        inputs = outputs
    return inputs


def node_weight(act: GReLU, logits: dict[int, list[Tensor]], n: int, j: int) -> Tensor:
    """Of node n, from the logits of the nodes of its graph."""
    if act.mode == "paper":
        return torch.exp(logits[n][j]) / sum(torch.exp(z[j]) for z in logits.values())
    c = act.calibration
    if c.node_weights == "sigmoid":
        gamma = 2 * c.gamma_scale / (1 + torch.exp(-logits[n][j] / c.temperature))
    else:
        total = sum(torch.exp(z[j] / c.temperature) for z in logits.values())
        gamma = c.gamma_scale * len(logits) * torch.exp(logits[n][j] / c.temperature) / total
    return gamma if gamma < c.gamma_max else gamma * 0 + c.gamma_max


def smoothed(
    act: GReLU, x: Tensor, e: Matrix, sums: Matrix, nodes: list[int]
) -> tuple[dict, list[Tensor]]:
    """The logits of the nodes of a graph, from the means around them and how smooth it is; and
    that, one number for each of a node's logits."""
    local = {n: mlp(act.node_mlp, list(x[n])) for n in nodes}
    averaged = {n: mlp(act.node_mlp, [value / sums[n][0] for value in e[n]]) for n in nodes}
    logits: dict = {n: [] for n in nodes}
    smoothness = []
    for j in range(len(local[nodes[0]])):
        variance = []
        for values in (local, averaged):
            mean = sum(values[n][j] for n in nodes) / len(nodes)
            variance.append(sum((values[n][j] - mean) ** 2 for n in nodes) / len(nodes))
        total = variance[0] + 1e-8 * sum(local[n][j] ** 2 for n in nodes) / len(nodes)
        rho = variance[1] / total if total > 0 else 0 * total
        rho = (rho if rho < 1 else rho * 0 + 1) ** act.calibration.smooth
        smoothness.append(rho.detach())
        for n in nodes:
            logits[n].append(rho * averaged[n][j])
    return logits, smoothness


def grelu(act: GReLU, x: Tensor, edges: Tensor, weight: Tensor, batch: list[int]) -> Tensor:
    N, C = x.shape
    K, constants = act.K, act.calibration
    e = diffused(x, edges, weight, act) if act.topology else [list(row) for row in x]
    smooth = act.topology and act.mode == "calibrated" and constants.smooth
    sums = diffused(torch.ones(N, 1).to(x), edges, weight, act) if smooth else []
    y: Matrix = [[None] * C for _ in range(N)]
    for graph in set(batch):
        nodes = [n for n in range(N) if batch[n] == graph]
        mean = [sum(e[n][c] for n in nodes) / len(nodes) for c in range(C)]
        if act.channel_mlp is not None:
            inside = 1.0 if act.mode == "paper" else constants.channel_scale
            P = [torch.tanh(inside * p) for p in mlp(act.channel_mlp, mean)]
            if act.mode == "calibrated" and constants.centred:
                middle = sum(P[:C]) / C
                P = [p - middle for p in P[:C]] + P[C:]
        logits = None
        if act.node_mlp is not None:
            logits = {n: mlp(act.node_mlp, e[n]) for n in nodes}
            if smooth:
                logits, smoothness = smoothed(act, x, e, sums, nodes)
        for n in nodes:
            for c in range(C):
                segments = []
                for k in range(K):
                    alpha_c = P[k * C + c] if act.channel_wise else torch.tensor(1.0)
                    beta_c = P[(K + k) * C + c] if act.bias else torch.tensor(0.0)
                    gamma = torch.tensor(1.0)
                    if logits is not None:
                        j = 0 if act.channel_wise else k
                        gamma = node_weight(act, logits, n, j)
                    alpha, beta = gamma * alpha_c, gamma * beta_c
                    if act.mode == "calibrated":
                        base = 1.0 if k == 0 else act.negative_slope
                        g = constants.gate_scale * (act.gate if constants.gated else 1.0)
                        if constants.gated and constants.gate_max is not None:
                            g = constants.gate_max * torch.tanh(g / constants.gate_max)
                        factor = 1.0
                        if logits is not None and smooth and constants.rest_smooth:
                            factor = smoothness[j]
                        rest = factor * constants.rest_scale
                        first = factor if constants.first_smooth else 1.0
                        alpha = base + g * alpha * (first if k == 0 else rest)
                        beta = g * beta * factor * constants.intercept_scale
                    segments.append(alpha * x[n, c] + beta)
                best = segments[0]
                for segment in segments[1:]:
                    best = segment if segment > best else best
                y[n][c] = best.reshape(())
    return torch.stack([torch.stack(row) for row in y])
