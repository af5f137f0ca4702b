"""How accurate a diffusion is, against the exact operator, and what it costs, on real graphs.

python benchmarks/diffusion.py --data ~/datasets
"""

import argparse
from functools import partial
from pathlib import Path

import torch
from measure import milliseconds, save
from torch import Tensor

from graphrelu.diffusion import as_edges, to_csr
from graphrelu.functional import exact_operator, normalized_adjacency
from graphrelu.lab.data import load
from graphrelu.lab.models.sparse import row_normalized
from graphrelu.lab.record.machine import surroundings
from graphrelu.ops.dispatch import diffuse

GRAPHS = ("cora", "citeseer", "blogcatalog", "flickr")
FORMS = [("power", steps) for steps in (5, 10, 20)]
FORMS += [("chebyshev", steps) for steps in (3, 4, 5, 6, 8, 10)]
ALPHA = 0.1


def columns(x: Tensor, count: int = 100) -> dict[str, Tensor]:
    """What is diffused: random projections of the features, as GReLU does, and noise."""
    weight = torch.randn(x.size(1), count)
    features = torch.sparse.mm(x, weight) if x.layout == torch.sparse_csr else x @ weight
    return {"features": features.double(), "noise": torch.randn_like(features).double()}


def errors(name: str, root: Path | None) -> list[dict[str, object]]:
    graph = load(name, root)
    edges = as_edges(graph.edge_index, None, graph.num_nodes, torch.double)
    edges = normalized_adjacency(edges)
    operator, matrix = exact_operator(edges, ALPHA), to_csr(edges)[0]
    inputs = columns(row_normalized(graph.x) if graph.family == "citation" else graph.x)
    single = torch.randn(graph.num_nodes, 1)
    narrow = matrix._replace(value=matrix.value.float())
    rows = []
    for diffusion, steps in FORMS:
        row: dict[str, object] = {"graph": name, "diffusion": diffusion, "steps": steps}
        for what, x in inputs.items():
            exact = operator @ x
            out = diffuse(x, matrix, matrix, ALPHA, steps, diffusion)
            row[f"error_{what}"] = float((out - exact).norm() / exact.norm())
        form = (ALPHA, steps, diffusion)
        row["ms"] = milliseconds(partial(diffuse, single, narrow, narrow, *form), single.device)
        rows.append(row)
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, help="folder of the datasets, else $GRAPHRELU_DATA")
    parser.add_argument("--out", type=Path, help="where to keep the record (JSON)")
    args = parser.parse_args()
    torch.manual_seed(0)
    rows = [row for name in GRAPHS for row in errors(name, args.data)]
    print(f"{'':14}{'':12}{'steps':>6}{'features':>10}{'noise':>8}{'ms':>8}")
    for row in rows:
        print(
            f"{row['graph']:14}{row['diffusion']:12}{row['steps']:6}"
            f"{row['error_features']:10.3f}{row['error_noise']:8.3f}{row['ms']:8.2f}"
        )
    if args.out is not None:
        save(args.out, {"alpha": ALPHA, **surroundings(torch.device("cpu")), "rows": rows})


if __name__ == "__main__":
    main()
