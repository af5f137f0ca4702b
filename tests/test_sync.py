"""Two processes with a component each, against one process with both."""

from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from torch import Tensor
from torch.nn.parallel import DistributedDataParallel
from torch_geometric.nn import GCNConv

from graphrelu import GReLU
from tests.helpers import OTHER, SHARP, assert_close, batch_of_graphs, opened

PROCESSES = 2
OPTIONS: list[dict] = [
    {},
    {"mode": "paper"},
    {"node_wise": False},
    {**OTHER, "channel_wise": False, "K": 3},
    SHARP,
]


class Net(torch.nn.Module):
    def __init__(self, **options: object) -> None:
        super().__init__()
        act = GReLU(5, steps=3, track_running_stats=True, **options)
        self.conv1, self.act, self.conv2 = GCNConv(4, 5), opened(act), GCNConv(5, 2)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        return self.conv2(self.act(self.conv1(x, edge_index), edge_index), edge_index)


def compare(rank: int, sizes: list[int], sync: bool, **options: object) -> list[float]:
    """The largest difference of outputs, gradients and statistics to those of one process."""
    torch.manual_seed(len(sizes) + sizes[0])
    x = torch.randn(sum(sizes), 4, dtype=torch.double)
    weight = torch.randn(sum(sizes), 2, dtype=torch.double)
    edge_index, component = batch_of_graphs(sizes)
    net = Net(sync=sync, **options).double()
    alone = Net(**options).double()
    alone.load_state_dict(net.state_dict())
    # DDP takes the mean of the gradients: for that of the sum, the losses are scaled.
    parallel = DistributedDataParallel(net)

    own = component == rank
    start = int(component.lt(rank).sum())
    for _ in range(2):
        out = parallel(x[own], edge_index[:, own[edge_index[0]]] - start)
        (PROCESSES * (out * weight[own]).sum()).backward()
        expected = alone(x, edge_index)
        (expected * weight).sum().backward()
    pairs = [(out, expected[own])]
    pairs += [(a.grad, b.grad) for a, b in zip(net.parameters(), alone.parameters(), strict=True)]
    pairs += list(zip(net.buffers(), alone.buffers(), strict=True))
    return [float((a - b).abs().max()) if a.numel() else 0.0 for a, b in pairs]


def worker(rank: int, folder: str) -> None:
    torch.set_num_threads(1)
    rendezvous = f"file://{folder}/rendezvous"
    dist.init_process_group("gloo", init_method=rendezvous, rank=rank, world_size=PROCESSES)
    for options in OPTIONS:
        assert max(compare(rank, [9, 14], sync=True, **options)) < 1e-10, options
    assert max(compare(rank, [9, 0], sync=True)) < 1e-10, "a process without nodes"
    assert max(compare(rank, [9, 14], sync=False)) > 1e-3, "nothing to synchronise"
    without_communication(rank)
    dist.destroy_process_group()


def without_communication(rank: int) -> None:
    """In evaluation, and with batches of whole graphs, a process may be called on its own."""
    if rank > 0:
        return
    edge_index, batch = batch_of_graphs([4, 3])
    x, act, plain = torch.randn(7, 4), opened(GReLU(4, sync=True)), GReLU(4)
    plain.load_state_dict(act.state_dict())
    assert_close(act.eval()(x, edge_index), plain(x, edge_index), 1e-5)
    assert torch.equal(act.train()(x, edge_index, batch=batch), plain(x, edge_index, batch=batch))


def test_two_processes_are_one(tmp_path: Path) -> None:
    torch.multiprocessing.spawn(worker, (str(tmp_path),), nprocs=PROCESSES)


@pytest.mark.parametrize("track", [False, True])
def test_one_process(track: bool) -> None:
    """Without torch.distributed there is nothing to synchronise."""
    act, plain = opened(GReLU(4, sync=True, track_running_stats=track)), GReLU(4)
    plain.load_state_dict(act.state_dict(), strict=False)
    edge_index, _ = batch_of_graphs([6])
    x = torch.randn(6, 4)
    assert_close(act(x, edge_index), plain(x, edge_index), 1e-5)
