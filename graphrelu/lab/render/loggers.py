"""Training curves for TensorBoard and Weights & Biases: callbacks of ``graphrelu.lab.compare``, and
``graphrelu compare --log``.

Neither package is needed by the laboratory; each is imported where its callback is made.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from graphrelu.lab.record.results import Result


class Epoch(NamedTuple):
    """What a callback is called with after each epoch."""

    activation: str
    seed: int
    epoch: int  # from 1
    epochs: int
    loss: float
    val_score: float


class TensorBoard:
    """Writes the loss and the validation score of each run to a folder of its own.

    Args:
        folder (str or Path): The folder that holds the runs, such as ``"runs/x"``.
    """

    def __init__(self, folder: str | Path) -> None:
        try:
            from torch.utils.tensorboard import SummaryWriter
        except ImportError as error:
            raise ImportError(
                "TensorBoard needs the package tensorboard: pip install tensorboard."
            ) from error
        self.folder, self.open = Path(folder), SummaryWriter
        self.writer: Any = None

    def __call__(self, now: Epoch) -> None:
        if now.epoch == 1:
            self.writer = self.open(str(self.folder / now.activation / str(now.seed)))
        self.writer.add_scalar("loss", now.loss, now.epoch)
        self.writer.add_scalar("val_score", now.val_score, now.epoch)
        if now.epoch == now.epochs:
            self.writer.close()

    def write(self, run: Result) -> None:
        """Writes the curves of a finished run, at the epochs that its record keeps."""
        from graphrelu.lab.record.results import kept_positions

        writer = self.open(str(self.folder / run.config.activation / str(run.seed)))
        for name, curve in run.curves.items():
            epochs = kept_positions(run.epochs_run, len(curve))
            for epoch, value in zip(epochs, curve, strict=True):
                writer.add_scalar(name, value, epoch + 1)
        writer.close()


class WandB:
    """Logs the loss and the validation score of each run as a run of Weights & Biases.

    Args:
        project (str): The project.
        **options (optional): Further arguments of :func:`wandb.init`, such as ``mode="offline"``.
    """

    def __init__(self, project: str, **options: Any) -> None:
        try:
            import wandb
        except ImportError as error:
            raise ImportError("WandB needs the package wandb: pip install wandb.") from error
        self.init, self.options = wandb.init, {"project": project, **options}
        self.run: Any = None

    def __call__(self, now: Epoch) -> None:
        if now.epoch == 1:
            name, told = f"{now.activation}-{now.seed}", now._asdict()
            config = {key: told[key] for key in ("activation", "seed", "epochs")}
            self.run = self.init(**{"name": name, "config": config, **self.options})
        self.run.log({"loss": now.loss, "val_score": now.val_score}, step=now.epoch)
        if now.epoch == now.epochs:
            self.run.finish()
