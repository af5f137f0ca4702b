"""Runs of one configuration that are trained at once, whatever they are trained on.

The parameters of the runs are stacked, one `vmap` serves all forward passes, and Adam works
elementwise; on a GPU a whole epoch is captured once and replayed.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import torch
from torch import Tensor
from torch.func import stack_module_state

from graphrelu.lab.record.config import Config
from graphrelu.lab.record.results import commit, device_name, environment, now

# Between two looks at whether all runs have stopped; each look waits for the GPU.
LOOK_EVERY = {"cpu": 1, "cuda": 20}


Model = TypeVar("Model", bound=torch.nn.Module)


def seeded(make: Callable[[str, dict[str, Any]], Model], config: Config, seed: int) -> Model:
    """A model with the parameters that a seed stands for, the same on every device.

    All but the activations' own are those of the model with ReLU: whatever an activation draws for
    itself, the runs of one seed start alike.
    """
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = make(config.activation, dict(config.activation_options))
        torch.manual_seed(seed)
        with_relu = make("none" if config.activation == "none" else "relu", {})
    model.load_state_dict(with_relu.state_dict(), strict=False)
    return model.to(getattr(torch, config.dtype))


class StackedRuns(ABC):
    """The state of the runs, and of the books that choosing an epoch and the record need.

    What makes an epoch is :meth:`epoch`, which each kind of training has its own of.
    """

    def __init__(
        self,
        config: Config,
        seeds: Sequence[int],
        models: Sequence[torch.nn.Module],
        device: torch.device,
        curves: Sequence[str],
        lr: Tensor | None = None,
    ) -> None:
        self.config, self.seeds, self.device = config, tuple(seeds), device
        parameters, buffers = stack_module_state(list(models))
        self.initial = {n: v.detach().clone() for n, v in {**parameters, **buffers}.items()}
        self.state = {name: value.to(device, copy=True) for name, value in self.initial.items()}
        self.parameters = {name: self.state[name].requires_grad_() for name in parameters}
        self.best = {name: value.detach().clone() for name, value in self.state.items()}
        self.skeleton = models[0].to("meta")
        on_gpu = device.type == "cuda"
        self.optimizer = torch.optim.Adam(
            list(self.parameters.values()),
            lr=config.lr if lr is None else lr,
            weight_decay=config.weight_decay,
            fused=True,
            capturable=on_gpu,
        )
        runs = len(seeds)
        self.seed_tensor = torch.tensor(seeds, device=device)
        self.step = torch.zeros((), dtype=torch.long, device=device)
        self.active = torch.ones(runs, dtype=torch.bool, device=device)
        self.best_value = torch.full((runs,), torch.inf, device=device, dtype=torch.double)
        self.best_epoch = torch.zeros(runs, dtype=torch.long, device=device)
        self.epochs_run = torch.zeros(runs, dtype=torch.long, device=device)
        self.curves = {name: torch.zeros(config.epochs, runs, device=device) for name in curves}

    @abstractmethod
    def epoch(self) -> None:
        """One epoch of every run."""

    def parts(self) -> list[tuple[Callable[[], None], int]]:
        """What an epoch consists of, each to be captured on a GPU, and how often it comes."""
        return [(self.epoch, 1)]

    def update(self, loss: Tensor) -> None:
        """One optimiser step of every run, from their losses `[R]`."""
        leaves = list(self.parameters.values())
        # A convolution may hold parameters that it does not use (ARMA's with one layer).
        grads = torch.autograd.grad(loss.sum(), leaves, allow_unused=True)
        for leaf, grad in zip(leaves, grads, strict=True):
            # The fused optimiser does not look at strides.
            leaf.grad = None if grad is None else grad.contiguous()
        self.optimizer.step()

    def keep_the_best(self, value: Tensor) -> None:
        """The state of the lowest value `[R]`: the only thing that chooses an epoch."""
        self.epochs_run += self.active
        improved = self.active & (value < self.best_value)
        self.best_value.copy_(torch.where(improved, value.double(), self.best_value))
        self.best_epoch.copy_(torch.where(improved, self.step + 1, self.best_epoch))
        for name, best in self.best.items():
            chosen = improved.view(-1, *(1,) * (best.dim() - 1))
            best.copy_(torch.where(chosen, self.state[name], best))

    def note(self, **values: Tensor) -> None:
        """This epoch's point of each curve."""
        for name, value in values.items():
            self.curves[name].index_copy_(0, self.step.view(1), value.float().unsqueeze(0))

    def run(self, progress: Callable[[int], None] | None = None) -> None:
        """Trains until every run has stopped or the epochs are over."""
        advance = self.stepper()
        look_every = LOOK_EVERY[self.device.type]
        for epoch in range(1, self.config.epochs + 1):
            advance()
            if epoch % look_every == 0 or epoch == self.config.epochs:
                if progress is not None:
                    progress(epoch)
                if not bool(self.active.any()):
                    break

    def stepper(self) -> Callable[[], None]:
        """What runs an epoch: on a GPU CUDA graphs, as small models are bound by launches."""
        if self.device.type != "cuda":
            return self.epoch
        stream = torch.cuda.Stream(self.device)
        stream.wait_stream(torch.cuda.current_stream(self.device))
        with torch.cuda.stream(stream):
            for part, _ in self.parts():
                # Whatever is prepared lazily must be there before the capture.
                for _ in range(min(2, self.config.epochs)):
                    part()
        torch.cuda.current_stream(self.device).wait_stream(stream)
        self.restart()
        replays = []
        for part, times in self.parts():
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph):
                part()
            replays += [graph.replay] * times

        def advance() -> None:
            for replay in replays:
                replay()

        return advance

    def restart(self) -> None:
        """Back to the start, in place: a captured graph keeps the addresses."""
        with torch.no_grad():
            for name, value in self.initial.items():
                self.state[name].copy_(value)
                self.best[name].copy_(value)
            for state in self.optimizer.state.values():
                for value in state.values():
                    value.zero_()
            for counter in (self.step, self.best_epoch, self.epochs_run, *self.curves.values()):
                counter.zero_()
            self.active.fill_(True)
            self.best_value.fill_(torch.inf)

    def provenance(self, seconds: float) -> dict[str, Any]:
        """What the results of all runs have in common."""
        return {
            "seconds": seconds / len(self.seeds),
            "device": device_name(self.device),
            "versions": environment(),
            "date": now(),
            "commit": commit(),
        }


def cross_entropy(logits: Tensor, label: Tensor, weight: Tensor) -> Tensor:
    """The weighted sum of each run's losses `[R]`, from logits `[R, n, classes]`."""
    log_likelihood = logits.log_softmax(dim=2).gather(2, label.unsqueeze(2)).squeeze(2)
    return -(weight.to(logits.dtype) * log_likelihood).sum(dim=1)
