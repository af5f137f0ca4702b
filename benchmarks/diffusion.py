"""How accurate a diffusion is, against the exact operator, and what it costs beside PyG's, on real
graphs.

python benchmarks/diffusion.py --data ~/datasets
"""

import argparse
from collections.abc import Callable
from functools import partial
from pathlib import Path

import torch
from measure import milliseconds, save
from torch import Tensor
from torch_geometric import EdgeIndex
from torch_geometric.nn import APPNP

from graphrelu.functional import Edges, exact_operator, normalized_adjacency
from graphrelu.graph import as_edges, to_csr
from graphrelu.lab.data import load
from graphrelu.lab.models.sparse import row_normalized
from graphrelu.ops.diffuse import diffuse

GRAPHS = ("cora", "citeseer", "blogcatalog", "flickr")
FORMS = [("power", steps) for steps in (5, 10, 20)]
FORMS += [("chebyshev", steps) for steps in (3, 4, 5, 6, 8, 10)]
ALPHA = 0.1
SECONDS = 2.0  # of each form, for its time


def columns(x: Tensor, count: int = 100) -> dict[str, Tensor]:
    """What is diffused: random projections of the features, as GReLU does, and noise."""
    weight = torch.randn(x.size(1), count)
    features = torch.sparse.mm(x, weight) if x.layout == torch.sparse_csr else x @ weight
    return {"features": features.double(), "noise": torch.randn_like(features).double()}


def by_edge_index(edges: Edges, steps: int) -> Callable[[Tensor], Tensor]:
    pairs = torch.stack([edges.target, edges.source])
    pairs, order = EdgeIndex(pairs, sparse_size=(edges.num_nodes,) * 2).sort_by("row")
    weight = edges.weight[order]

    def power_iteration(x: Tensor) -> Tensor:
        out = x
        for _ in range(steps):
            out = (1 - ALPHA) * pairs.matmul(out, weight) + ALPHA * x
        return out

    return power_iteration


Product = Callable[[Tensor], Tensor]


def forms(edge_index: Tensor, num_nodes: int, dtype: torch.dtype) -> dict[str, Product]:
    """Ours with some numbers of products, and power iteration with ten by PyG's means."""
    edges = as_edges(edge_index, None, num_nodes, dtype)
    matrix = to_csr(edges, add_self_loops=False)[0]  # all graphs are undirected
    ours = partial(diffuse, matrix=matrix, transposed=matrix, alpha=ALPHA)
    made: dict[str, Product] = {
        f"{kind}, {steps}": partial(ours, steps=steps, kind=kind) for kind, steps in FORMS
    }
    appnp = APPNP(10, ALPHA, cached=True, add_self_loops=False)
    made["APPNP, 10"] = partial(appnp, edge_index=edge_index)
    made["EdgeIndex.matmul, 10"] = by_edge_index(normalized_adjacency(edges), 10)
    return made


def errors(name: str, root: Path | None) -> list[dict[str, object]]:
    graph = load(name, root)
    edges = normalized_adjacency(as_edges(graph.edge_index, None, graph.num_nodes, torch.double))
    operator = exact_operator(edges, ALPHA)
    inputs = columns(row_normalized(graph.x) if graph.family == "citation" else graph.x)
    single = torch.randn(graph.num_nodes, 1)
    narrow = forms(graph.edge_index, graph.num_nodes, torch.float)
    rivals = {form: partial(run, single) for form, run in narrow.items()}
    times = milliseconds(rivals, single.device, budget=SECONDS)
    rows = []
    for form, run in forms(graph.edge_index, graph.num_nodes, torch.double).items():
        row: dict[str, object] = {"graph": name, "form": form}
        for what, x in inputs.items():
            exact = operator @ x
            row[f"error_{what}"] = float((run(x) - exact).norm() / exact.norm())
        rows.append({**row, "ms": times[form]})
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, help="folder of the datasets, else $GRAPHRELU_DATA")
    parser.add_argument("--out", type=Path, help="where to keep the record (JSON)")
    args = parser.parse_args()
    torch.manual_seed(0)
    rows = [row for name in GRAPHS for row in errors(name, args.data)]
    print(f"{'':14}{'':22}{'features':>10}{'noise':>8}{'ms':>8}")
    for row in rows:
        print(
            f"{row['graph']:14}{row['form']:22}"
            f"{row['error_features']:10.3f}{row['error_noise']:8.3f}{row['ms']:8.2f}"
        )
    save(args.out, torch.device("cpu"), {"alpha": ALPHA, "rows": rows})


if __name__ == "__main__":
    main()
