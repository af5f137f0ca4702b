"""A LightningModule whose training step is where its activations are."""

import pytorch_lightning
import torch
import torch.nn.functional as F
from torch import Tensor
from torch_geometric.nn import GCNConv


class LightningGCN(pytorch_lightning.LightningModule):
    def __init__(self) -> None:
        super().__init__()
        self.conv1, self.conv2 = GCNConv(5, 8), GCNConv(8, 4)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        return self.conv2(F.relu(self.conv1(x, edge_index)), edge_index)

    def training_step(self, batch: tuple[Tensor, Tensor], index: int) -> Tensor:
        return self(*batch).pow(2).mean()

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.Adam(self.parameters(), lr=0.01)
