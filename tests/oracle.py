"""GReLU written from the paper with nested loops over scalars: slow, and easy to compare with it.

Only the parameters are taken from a module; nothing of the library computes here.
"""

from math import sqrt

import torch
from torch import Tensor

from graphrelu import GReLU
from graphrelu.grelu import Diagonal

Matrix = list[list[Tensor]]


def diffused(x: Tensor, edges: Tensor, weight: Tensor, act: GReLU) -> Matrix:
    """Power iteration for alpha (I - (1 - alpha) D^-1/2 A D^-1/2)^-1 X."""
    N, C = x.shape
    A = [[0.0] * N for _ in range(N)]
    for (source, target), w in zip(edges.t().tolist(), weight.tolist(), strict=True):
        A[target][source] += w
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


def linear(layer: torch.nn.Module, inputs: list[Tensor]) -> list[Tensor]:
    outputs = []
    for o in range(layer.out_features):
        total = layer.bias[o] if layer.bias is not None else torch.tensor(0.0)
        for i, value in enumerate(inputs):
            total = total + layer.weight[o, i] * value
        outputs.append(total)
    return outputs


def channel_map(block: torch.nn.Module, mean: list[Tensor]) -> list[Tensor]:
    """The linear map of the channel block: full, or for each channel on its own."""
    if not isinstance(block, Diagonal):
        return linear(block, mean)
    return [
        block.weight[row, c] * value + block.bias[row, c]
        for row in range(block.weight.size(0))
        for c, value in enumerate(mean)
    ]


def node_weight(act: GReLU, logits: dict[int, list[Tensor]], n: int, j: int) -> Tensor:
    """Of node n, from the logits of the nodes of its graph."""
    if act.mode == "paper":
        return torch.exp(logits[n][j]) / sum(torch.exp(z[j]) for z in logits.values())
    total = sum(torch.exp(z[j] / act.temperature) for z in logits.values())
    gamma = len(logits) * torch.exp(logits[n][j] / act.temperature) / total
    return gamma if gamma < act.gamma_max else gamma * 0 + act.gamma_max


def grelu(act: GReLU, x: Tensor, edges: Tensor, weight: Tensor, batch: list[int]) -> Tensor:
    N, C = x.shape
    K = act.K
    e = diffused(x, edges, weight, act) if act.topology else [list(row) for row in x]
    y: Matrix = [[None] * C for _ in range(N)]
    for graph in set(batch):
        nodes = [n for n in range(N) if batch[n] == graph]
        mean = [sum(e[n][c] for n in nodes) / len(nodes) for c in range(C)]
        inside = 1.0 if act.mode == "paper" else act.scale
        if act.channel_mlp is not None:
            P = [torch.tanh(inside * p) for p in channel_map(act.channel_mlp, mean)]
        logits = None
        if act.node_mlp is not None:
            logits = {n: linear(act.node_mlp, e[n]) for n in nodes}
        for n in nodes:
            for c in range(C):
                segments = []
                for k in range(K):
                    if act.channel_wise:
                        alpha_c = P[k * C + c]
                    elif act.mode == "calibrated":
                        alpha_c = torch.tanh(inside * act.shared_slopes[k])
                    else:
                        alpha_c = torch.tensor(1.0)
                    beta_c = P[(K + k) * C + c] if act.bias else torch.tensor(0.0)
                    gamma = torch.tensor(1.0)
                    if logits is not None:
                        j = 0 if act.channel_wise else k
                        gamma = node_weight(act, logits, n, j)
                    alpha, beta = gamma * alpha_c, gamma * beta_c
                    if act.mode == "calibrated":
                        alpha = alpha + (1.0 if k == 0 else act.negative_slope)
                    segments.append(alpha * x[n, c] + beta)
                best = segments[0]
                for segment in segments[1:]:
                    best = segment if segment >= best else best
                y[n][c] = best.reshape(())
    return torch.stack([torch.stack(row) for row in y])
