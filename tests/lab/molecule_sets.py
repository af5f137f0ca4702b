"""Small sets of generated graphs, in the form of molecules, for the tests."""

import torch
from torch import Tensor

from graphrelu.lab.data.graph import Features, GraphSet


def ring_set(count: int = 30, targets: int = 1, values: bool = False, seed: int = 0) -> GraphSet:
    """Rings of 3 to 8 nodes in three categories; a target depends on one of the graph's counts."""
    generator = torch.Generator().manual_seed(seed)
    sizes = torch.randint(3, 9, (count,), generator=generator)
    kind = torch.randint(0, 3, (int(sizes.sum()),), generator=generator)
    share = torch.stack([(part == 0).float().mean() for part in kind.split(sizes.tolist())])
    y = share if values else (share > share.median()).float()
    ends = torch.cat([ring(int(size)) for size in sizes], dim=1)
    return GraphSet(
        "rings",
        Features(torch.tensor([[0, 1], [1, 0], [2, 1]]), kind, (3, 2)),
        Features(torch.tensor([[0], [1]]), ends[0] % 2, (2,)),
        ends,
        sizes,
        2 * sizes,
        y.view(-1, 1).repeat(1, targets),
        tuple(f"y{i}" for i in range(targets)),
        torch.arange(count) % 3,
    )


def ring(size: int) -> Tensor:
    node = torch.arange(size)
    beside = (node + 1) % size
    return torch.stack([torch.cat([node, beside]), torch.cat([beside, node])])
