"""The mini-batches of training by folds."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from graphrelu.lab.data.splits import NUM_FOLDS as NUM_FOLDS
from graphrelu.lab.data.splits import Split, random_keys
from graphrelu.lab.data.splits import fold_split as fold_split

BATCH_SIZE = 128
GIN_STEPS, GIN_BATCH_SIZE = 50, 32  # of an epoch, where mini-batches are drawn as by GIN's code


def training_order(
    split: Split, seed: int, epochs: int, steps: int, padding: int, batch_size: int = BATCH_SIZE
) -> Tensor:
    """The training graphs of each step ``[epochs, steps, batch_size]``, in a new order in every
    epoch.

    A place that is left over holds the number ``padding``.
    """
    graphs, places = split.train.numpy(), steps * batch_size
    keys = random_keys(seed, epochs * len(graphs)).reshape(epochs, -1)
    order = np.full((epochs, places), padding)
    shuffled = graphs[np.argsort(keys, axis=1, kind="stable")[:, :places]]
    order[:, : shuffled.shape[1]] = shuffled
    return torch.from_numpy(order.reshape(epochs, steps, batch_size))


def steps_per_epoch(y: Tensor, how: str) -> int:
    """The number of steps that every fold fills. The number of graphs of a class in a fold does
    not depend on chance. A larger fold leaves a few random graphs out in each epoch."""
    sizes = [len(fold_split(y, seed, how).train) for seed in range(NUM_FOLDS)]
    return -(-min(sizes) // BATCH_SIZE)
