"""A two-layer GCN with GReLU on a generated graph of a million nodes, in several processes.

    torchrun --nproc_per_node=2 --max-restarts=3 examples/distributed.py

Every process trains on one part of the graph per step. A checkpoint is written every few steps: if
a process dies, torchrun restarts all of them, and they continue from there; so does the same
command after an interruption. It uses NCCL on GPUs and Gloo elsewhere; without torchrun, one
process does everything.
"""

import argparse
import os
import resource
import signal
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor
from torch.distributed.rendezvous import rendezvous
from torch.nn.parallel import DistributedDataParallel
from torch_geometric.nn import GCNConv

from graphrelu import GReLU

CHANNELS, CLASSES = 32, 10


class PartitionedGraph:
    """Nodes along a ring, with stretches of one class, mostly joined to nodes close by: splitting
    the ring into ranges cuts few edges. (METIS finds such a numbering for any graph.)"""

    def __init__(self, num_nodes: int, num_edges: int, num_parts: int) -> None:
        generator = torch.Generator().manual_seed(0)
        self.num_nodes, self.num_parts = num_nodes, num_parts
        self.y = torch.arange(num_nodes) // 100 % CLASSES
        self.x = torch.randn(num_nodes, CHANNELS, generator=generator)
        self.x += 0.5 * torch.randn(CLASSES, CHANNELS, generator=generator)[self.y]

        source = torch.arange(num_edges // 2) % num_nodes
        far = torch.rand(source.numel(), generator=generator) < 0.05
        target = source + torch.randint(1, 30, source.shape, generator=generator)
        target[far] = torch.randint(num_nodes, (int(far.sum()),), generator=generator)
        target %= num_nodes
        row, order = torch.cat([source, target]).sort()
        self.col = torch.cat([target, source])[order]
        self.rowptr = F.pad(torch.bincount(row, minlength=num_nodes).cumsum(0), (1, 0))

    def part(self, index: int) -> tuple[Tensor, Tensor, Tensor]:
        """Features, edges and labels of one part."""
        start = index * self.num_nodes // self.num_parts
        stop = (index + 1) * self.num_nodes // self.num_parts
        rowptr = self.rowptr[start : stop + 1]
        col = self.col[rowptr[0] : rowptr[-1]] - start
        row = torch.repeat_interleave(torch.arange(stop - start), rowptr.diff())
        inside = (col >= 0) & (col < stop - start)
        return self.x[start:stop], torch.stack([col, row])[:, inside], self.y[start:stop]


class GCN(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv1 = GCNConv(CHANNELS, 64)
        self.act = GReLU(64)
        self.conv2 = GCNConv(64, CLASSES)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        x = self.act(self.conv1(x, edge_index), edge_index)
        return self.conv2(F.dropout(x, training=self.training), edge_index)


class Checkpoint:
    """The state after some step; the file appears under its name when it is complete."""

    def __init__(self, path: Path, processes: int, **parts: Any) -> None:
        self.path, self.processes, self.parts = path, processes, parts

    def save(self, step: int) -> None:
        states = {name: part.state_dict() for name, part in self.parts.items()}
        complete = self.path.with_suffix(".part")
        torch.save({"step": step, "processes": self.processes, **states}, complete)
        complete.replace(self.path)

    def load(self) -> int:
        """The step to go on with."""
        if not self.path.exists():
            return 0
        content = torch.load(self.path, map_location="cpu", weights_only=True)
        if content["processes"] != self.processes:
            raise RuntimeError(
                f"{self.path} was written by {content['processes']} processes and cannot be "
                f"continued by {self.processes}: the steps would see other parts of the graph."
            )
        for name, part in self.parts.items():
            part.load_state_dict(content[name])
        return int(content["step"])


def over_all_processes(*values: float, device: torch.device, largest: bool = False) -> list[float]:
    """The sums, or the largest ones, of numbers of each process."""
    total = torch.tensor(values, dtype=torch.double, device=device)
    if dist.is_initialized():
        dist.all_reduce(total, dist.ReduceOp.MAX if largest else dist.ReduceOp.SUM)
    return total.tolist()


@torch.no_grad()
def accuracy(model: GCN, graph: PartitionedGraph, parts: range, device: torch.device) -> float:
    """The percentage of right predictions on all nodes whose labels were not trained on."""
    model.eval()
    correct = count = 0
    for index in parts:
        x, edge_index, y = graph.part(index)
        hit = model(x.to(device), edge_index.to(device)).argmax(dim=1).cpu() == y
        hit[::10] = False
        correct, count = correct + int(hit.sum()), count + hit.numel() - hit[::10].numel()
    correct_of_all, count_of_all = over_all_processes(correct, count, device=device)
    return 100 * correct_of_all / count_of_all


def train(options: argparse.Namespace, rank: int, processes: int, device: torch.device) -> None:
    graph = PartitionedGraph(options.nodes, options.edges, options.parts)
    torch.manual_seed(0)
    model = GCN().to(device)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    checkpoint = Checkpoint(options.checkpoint, processes, model=model, optimizer=optimizer)
    first = checkpoint.load()
    parallel = DistributedDataParallel(model) if dist.is_initialized() else model

    steps_per_epoch = options.parts // processes
    last = options.epochs * steps_per_epoch
    if rank == 0:
        print(f"{options.nodes:,} nodes, {graph.col.numel():,} edges, {processes} processes")
        if first > 0:
            print(f"continues after step {first} of {last}", flush=True)
    for step in range(first, last):
        epoch, position = divmod(step, steps_per_epoch)
        order = torch.randperm(options.parts, generator=torch.Generator().manual_seed(epoch))
        x, edge_index, y = graph.part(int(order[position * processes + rank]))
        # A step's dropout depends on nothing before it, so that a continued run comes out the same.
        torch.manual_seed(step * processes + rank)
        optimizer.zero_grad()
        out = parallel(x.to(device), edge_index.to(device))
        loss = F.cross_entropy(out[::10], y[::10].to(device))  # one label in ten is known
        loss.backward()
        optimizer.step()
        done = step + 1
        if rank == 0 and (done % options.save_every == 0 or done == last):
            checkpoint.save(done)
            print(f"step {done} of {last}  loss {loss.item():.3f}", flush=True)
        is_first_try = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0") == "0"
        if done == options.fail_at_step and rank == processes - 1 and is_first_try:
            os.kill(os.getpid(), signal.SIGKILL)

    percent = accuracy(model, graph, range(rank, options.parts, processes), device)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20  # Linux counts kilobytes
    (largest,) = over_all_processes(peak, device=device, largest=True)
    (total,) = over_all_processes(peak, device=device)
    if rank == 0:
        print(f"test accuracy {percent:.1f} %")
        print(f"peak memory {largest:.2f} GiB in a process, {total:.2f} GiB in all")


def join(backend: str) -> None:
    """Like `dist.init_process_group(backend)`, but a restart has a corner of the store to itself:
    torchrun's store still holds the addresses of the dead processes."""
    store, rank, processes = next(rendezvous("env://"))
    store = dist.PrefixStore(f"restart{os.environ['TORCHELASTIC_RESTART_COUNT']}", store)
    dist.init_process_group(backend, store=store, rank=rank, world_size=processes)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--nodes", type=int, default=1_000_000)
    parser.add_argument("--edges", type=int, default=10_000_000)
    parser.add_argument("--parts", type=int, default=100)
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--checkpoint", type=Path, default=Path("distributed.pt"))
    parser.add_argument("--save-every", type=int, default=10, metavar="STEPS")
    parser.add_argument(
        "--fail-at-step", type=int, metavar="STEP", help="kill a process then, to see it recover"
    )
    options = parser.parse_args(arguments)

    rank, processes = int(os.environ.get("RANK", 0)), int(os.environ.get("WORLD_SIZE", 1))
    on_gpu = torch.cuda.is_available()
    device = torch.device("cuda", int(os.environ.get("LOCAL_RANK", 0))) if on_gpu else None
    if device is not None:
        torch.cuda.set_device(device)
    if "RANK" in os.environ:
        join("nccl" if on_gpu else "gloo")
    train(options, rank, processes, device or torch.device("cpu"))
    if dist.is_initialized():
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
