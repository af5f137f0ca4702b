"""Models with random branches, loops, checkpoints, in-place operations and batches, written by
Hypothesis: never silently different."""

import copy
import warnings
from typing import Any

import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from graphrelu import convert
from tests.conversion.models import batch_of_graphs
from tests.conversion.test_table import grelus, outcome
from tests.helpers import assert_close, opened, random_graph
from tests.property import conftest

_HEAD = """
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.checkpoint import checkpoint
from torch_geometric.nn import GCNConv, GraphConv, global_mean_pool

def helper(x):
    return F.relu(x)

class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv, self.act = GCNConv(6, 6), nn.ReLU()
    def forward(self, x, edge_index):
        return self.act(self.conv(x, edge_index)) + F.relu(x)

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.block = GraphConv(5, 6), Block()
        self.convs = nn.ModuleList([GCNConv(6, 6), GraphConv(6, 6), GCNConv(6, 6)])
        self.lins = nn.ModuleList([nn.Linear(6, 6), nn.Linear(6, 6)])
        self.act, self.leaky, self.norm = nn.ReLU(), nn.LeakyReLU(0.1), nn.LayerNorm(6)
    def two(self, x, edge_index):
        return self.act(self.lins[0](F.relu(self.convs[1](x, edge_index))))
    def step(self, x, edge_index):
        return torch.relu(self.convs[0](x, edge_index))
    def forward(self, x, edge_index, edge_weight=None, batch=None, flag=False):
        x = self.first(x, edge_index)
"""
STATEMENTS = [
    "x = self.convs[0](x, edge_index, edge_weight)",
    "x = self.convs[1](x, edge_index)",
    "x = self.lins[0](x)",
    "x = self.norm(self.lins[1](x))",
    "x = F.relu(x)",
    "x = torch.relu(x) - 0.1",
    "x = x.relu() if flag else (-x).relu()",
    "x = 1 * x; x.relu_()",
    "x = F.relu(x - 0.2, inplace=True)",
    "x = F.leaky_relu(x, 0.2)",
    "x = F.leaky_relu(x, 0.3 if flag else 0.4)",
    "x = F.elu(x)",
    "x = self.act(x)",
    "x = x + self.act(self.act(x) - 0.1)",
    "x = self.leaky(x)",
    "x = helper(x) - helper(-x)",
    "x = self.step(x, edge_index)",
    "x = self.block(x, edge_index)",
    "x = checkpoint(self.two, x, edge_index, use_reentrant=True)",
    "x = checkpoint(self.two, x, edge_index, use_reentrant=False)",
    "x = F.dropout(x, 0.3, self.training)",
    "x = x.t().contiguous().t()",
    "x = torch.cat([F.relu(x[:, :3]), x[:, 3:]], dim=1)",
    "x = x + F.relu(self.lins[0](x.mean(dim=0, keepdim=True)))",
    "x = x if batch is None else x + F.relu(global_mean_pool(x, batch))[batch]",
]
# The same without checkpoints and in-place operations.
PLAIN = {
    "x = 1 * x; x.relu_()": "x = x.relu()",
    ", inplace=True)": ")",
    "checkpoint(self.two, x, edge_index, use_reentrant=True)": "self.two(x, edge_index)",
    "checkpoint(self.two, x, edge_index, use_reentrant=False)": "self.two(x, edge_index)",
}
CONDITIONS = [
    "edge_weight is None",
    "batch is not None",
    "self.training",
    "flag",
    "x.size(0) > 15",
    "float(x.detach().sum()) > 0",
]
LOOPS = [
    "for conv in self.convs[:2 if flag else 3]: x = F.relu(conv(x, edge_index)) + x",
    "for lin in self.lins: x = self.act(lin(x))",
    "for _ in range(x.size(0) % 3): x = F.relu(self.convs[2](x, edge_index))",
]


@st.composite
def bodies(draw: Any, depth: int = 0) -> list[str]:
    lines: list[str] = []
    for _ in range(draw(st.integers(1, 4))):
        kind = draw(st.integers(0, 3 if depth < 2 else 1))
        if kind == 0:
            lines.append(draw(st.sampled_from(LOOPS)))
        elif kind == 1 or depth == 2:
            lines.append(draw(st.sampled_from(STATEMENTS)))
        else:
            lines.append(f"if {draw(st.sampled_from(CONDITIONS))}:")
            lines += [f"    {line}" for line in draw(bodies(depth + 1))]
            lines.append("else:")
            lines += [f"    {line}" for line in draw(bodies(depth + 1))]
    return lines


def inputs(seed: int) -> list[Any]:
    torch.manual_seed(seed)
    batched, batch = batch_of_graphs([7, 4, 9])
    xs = [torch.randn(n, 5, dtype=torch.double) for n in (12, 17, 20)]
    return [
        (xs[0], random_graph(12, 40)),
        (xs[1], random_graph(17, 40), torch.rand(40).double(), None, True),
        (xs[2], batched, None, batch),
    ]


def model_of(source: str) -> torch.nn.Module:
    """The models of a test have the same parameters."""
    torch.manual_seed(1)
    names: dict[str, Any] = {}
    exec(source, names)
    model: torch.nn.Module = names["Net"]().double()
    return model


@settings(max_examples=conftest.settings.default.max_examples // 2)  # by its profiles
@given(bodies(), st.integers(0, 99), st.booleans())
def test_random_branches(body: list[str], seed: int, from_batch: bool) -> None:
    source = _HEAD + "\n".join(f"        {line}" for line in [*body, "return F.relu(x) + x"])
    plain = source
    for special, same in PLAIN.items():
        plain = plain.replace(special, same)
    calls = inputs(seed)
    model, example = model_of(source), calls[2 if from_batch else 0]
    converted, other = (convert(m, example=example) for m in (model, model_of(plain)))
    assert grelus(converted)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "The activation at .* was not reached")
        warnings.filterwarnings("ignore", "None of the inputs have requires_grad")
        for args in calls:
            for training in (True, False):
                found = [outcome(m, "forward", args, training) for m in (model, converted)]
                assert all(map(torch.equal, *found)), source
        twin = copy.deepcopy(converted)
        assert torch.equal(twin(*calls[0]), converted(*calls[0]))
        # Nor do checkpoints and in-place operations differ once the GReLUs have left ReLU.
        for act in grelus(converted):
            opened(act)
        other.load_state_dict(converted.state_dict())
        for args in calls:
            assert_close(*(outcome(m, "forward", args, True) for m in (converted, other)))
