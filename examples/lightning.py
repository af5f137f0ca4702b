"""A two-layer GCN with GReLU in PyTorch Lightning, trained on random parts of a graph.

Needs `pip install pytorch-lightning`. `Trainer(devices=2, strategy="ddp")` trains in two processes.
"""

import pytorch_lightning as pl  # a file named lightning.py would hide the package of that name
import torch
import torch.nn.functional as F
from torch import Tensor
from torch_geometric.data import Data
from torch_geometric.loader import DataLoader, RandomNodeLoader
from torch_geometric.nn import GCNConv

from graphrelu import GReLU
from graphrelu.lab.data import load
from graphrelu.lab.data.splits import make_split


class GCN(pl.LightningModule):
    def __init__(self, in_channels: int, out_channels: int) -> None:
        super().__init__()
        self.conv1 = GCNConv(in_channels, 32)
        self.act = GReLU(32)
        self.conv2 = GCNConv(32, out_channels)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        x = self.act(self.conv1(x, edge_index), edge_index)
        return self.conv2(F.dropout(x, training=self.training), edge_index)

    def training_step(self, part: Data) -> Tensor:
        out = self(part.x, part.edge_index)
        return F.cross_entropy(out[part.train_mask], part.y[part.train_mask])

    def test_step(self, data: Data) -> None:
        correct = self(data.x, data.edge_index).argmax(dim=1) == data.y
        self.log("test_accuracy", correct[data.test_mask].float().mean(), batch_size=1)

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.Adam(self.parameters(), lr=0.01, weight_decay=5e-4)


def main(epochs: int = 100) -> None:
    pl.seed_everything(0, verbose=False)
    graph = load("digits")
    split = make_split(graph, seed=0)
    data = Data(x=graph.x, edge_index=graph.edge_index, y=graph.y)
    for name in ("train", "test"):
        mask = torch.zeros(graph.num_nodes, dtype=torch.bool)
        mask[getattr(split, name)] = True
        data[f"{name}_mask"] = mask

    model = GCN(graph.num_features, graph.num_classes)
    trainer = pl.Trainer(
        accelerator="cpu",
        max_epochs=epochs,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    trainer.fit(model, RandomNodeLoader(data, num_parts=4, shuffle=True))
    (metrics,) = trainer.test(model, DataLoader([data]), verbose=False)
    print(f"GCN with GReLU  test accuracy {100 * metrics['test_accuracy']:.1f} %")


if __name__ == "__main__":
    main()
