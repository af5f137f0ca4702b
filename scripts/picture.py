"""The README's picture, docs/assets/functions.svg: what one trained layer does to two molecules.

    python scripts/picture.py

The network is that of examples/molecules.py with its first seed, the layer its last one. The two
molecules are the least and the most soluble ones that training never saw; the channels those whose
functions differ most among all such molecules.
"""

import runpy
from pathlib import Path

import matplotlib.pyplot as plt
import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from rdkit.Chem import MolFromSmiles
from rdkit.Chem.rdDepictor import Compute2DCoords
from torch import Tensor
from torch_geometric.data import Data
from torch_geometric.loader import DataLoader

from graphrelu import GReLU, convert
from graphrelu.lab.reproduce.figures import COLOURS, drawing

ROOT = Path(__file__).parents[1]
NAMES = {"c1ccc2c(c1)ccc3c2ccc4c5ccccc5ccc43": "Picene", "NC(=O)N": "Urea"}
CHANNELS = 4
REACH = 2.0  # standard deviations of a layer's input
STYLE = {"font.size": 13, "svg.fonttype": "path", "axes.grid": False}


def trained() -> tuple[torch.nn.Module, list[Data]]:
    """The network of the example, and the molecules that it was tested on."""
    example = runpy.run_path(str(ROOT / "examples" / "molecules.py"))
    graphs = example["read_molecules"]()
    parts = example["split"](graphs, seed=0)
    torch.manual_seed(0)
    model = convert(example["GCN"](graphs[0].num_features))
    torch.manual_seed(0)
    example["train"](model, parts, epochs=40)
    return model.eval(), parts[2]


@torch.no_grad()
def functions(model: torch.nn.Module, molecules: list[Data]) -> list[tuple[Tensor, Tensor]]:
    """The slopes and intercepts of the last GReLU, `[nodes, 2, channels]` for each molecule."""
    act = [module for module in model.modules() if isinstance(module, GReLU)][-1]
    found = []

    def keep(module: GReLU, seen: tuple[Tensor, ...]) -> None:
        x, edge_index = seen[:2]
        found.append(module.coefficients(x, edge_index))

    handle = act.register_forward_pre_hook(keep)
    for b in DataLoader(molecules):
        model(b.x, b.edge_index, b.batch)
    handle.remove()
    return found


def curves(coefficients: tuple[Tensor, Tensor], x: Tensor) -> Tensor:
    """The functions at `x [X]`, as `[nodes, X, channels]`."""
    slope, intercept = (part.unsqueeze(2) for part in coefficients)
    return (slope * x.view(1, 1, -1, 1) + intercept).amax(dim=1)


def draw_molecule(axes: Axes, molecule: Data) -> None:
    mol = MolFromSmiles(molecule.smiles)
    Compute2DCoords(mol)
    place = mol.GetConformer().GetPositions()[:, :2]
    place -= (place.max(axis=0) + place.min(axis=0)) / 2
    for bond in mol.GetBonds():
        ends = place[[bond.GetBeginAtomIdx(), bond.GetEndAtomIdx()]]
        axes.plot(*ends.T, color="#666666", linewidth=2, zorder=1)
    for atom, (x, y) in zip(mol.GetAtoms(), place, strict=True):
        symbol = atom.GetSymbol()
        if symbol == "C":
            axes.plot(x, y, "o", color="#333333", markersize=7)
        else:
            axes.plot(x, y, "o", color="white", markersize=18)
            axes.text(x, y - 0.05, symbol, ha="center", va="center", fontsize=12, weight="bold")
    axes.set(aspect="equal", xlim=(-6.9, 6.9), ylim=(-2.6, 2.6))
    axes.axis("off")


def draw(model: torch.nn.Module, molecules: list[Data]) -> Figure:
    molecules = sorted(molecules, key=lambda molecule: float(molecule.y))
    x = torch.linspace(-REACH, REACH, 201)
    found = [curves(own, x) for own in functions(model, molecules)]
    typical = torch.stack([own.mean(dim=0) for own in found])
    chosen = typical.std(dim=0).mean(dim=0).topk(CHANNELS).indices.tolist()

    figure, axes = plt.subplots(
        2, 2, figsize=(6.6, 4.6), height_ratios=(1, 1.7), sharey="row", layout="constrained"
    )
    figure.suptitle("One layer, two molecules, two sets of functions", weight="bold")
    figure.supxlabel(
        f"The least and most soluble of {len(molecules)} unseen molecules.\n"
        "Each colour is a channel, each thin line an atom.",
        fontsize=12,
    )
    for (top, below), place in zip(axes.T, (0, -1), strict=True):
        draw_molecule(top, molecules[place])
        smiles = molecules[place].smiles
        top.set_title(NAMES.get(smiles, smiles))
        for channel, colour in zip(chosen, COLOURS, strict=False):
            for y in found[place][..., channel]:
                below.plot(x, y, color=colour, linewidth=1, alpha=0.35)
            below.plot(x, found[place][..., channel].mean(dim=0), color=colour, linewidth=2.4)
        below.plot(x, x.relu(), "--", color="black", linewidth=1.6, label="ReLU")
        below.set(xlabel="x", xticks=(-2, 0, 2), yticks=(0, 2))
        below.tick_params(length=0)
        below.grid(alpha=0.3)
    axes[1, 0].set_ylabel("GReLU(x)")
    axes[1, 0].legend(loc="upper left")
    return figure


def main() -> None:
    with drawing(), plt.rc_context(STYLE):
        path = ROOT / "docs" / "assets" / "functions.svg"
        draw(*trained()).savefig(path, metadata={"Date": None})


if __name__ == "__main__":
    main()
