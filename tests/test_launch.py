"""What the launcher remembers, with a kernel that only counts: no GPU is needed."""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import triton
import triton.language as tl
from torch import Tensor

from graphrelu.ops.triton import launch as launcher
from graphrelu.ops.triton.launch import launch, workspace


class Kernel:
    """Stands for a compiled kernel and the function that it comes from."""

    params = tuple(
        SimpleNamespace(name=name, is_constexpr=name.isupper()) for name in ("x_ptr", "n", "A", "B")
    )
    function, packed_metadata = 11, (4, 1, 0)

    def __init__(self) -> None:
        self.by_triton: list[Any] = []
        self.by_launcher: list[Any] = []

    def __getitem__(self, grid: tuple[int, int, int]) -> Callable[..., "Kernel"]:
        def start(*args: Any, **options: Any) -> Kernel:
            self.by_triton.append((grid, args, options))
            return self

        return start

    def run(self, *args: Any) -> None:
        self.by_launcher.append(args)


@pytest.fixture
def kernel(monkeypatch: pytest.MonkeyPatch) -> Kernel:
    monkeypatch.setattr(launcher, "_memory", {})
    monkeypatch.setattr(launcher, "_may_remember", lambda kernel, device: True)
    monkeypatch.setattr(torch._C, "_cuda_getCurrentRawStream", lambda device: 5, raising=False)
    return Kernel()


def test_second_launch_is_the_launchers_own(kernel: Kernel) -> None:
    first, second = torch.zeros(2, 64)
    launch(kernel, (3, 2, 1), (first,), (40,), (0.5,), num_warps=8, B=2, A=1)
    assert kernel.by_triton == [((3, 2, 1), (first, 40, 0.5), {"num_warps": 8, "A": 1, "B": 2})]
    assert not kernel.by_launcher
    launch(kernel, (7, 1, 1), (second,), (40,), (0.25,), num_warps=8, B=2, A=1)
    assert len(kernel.by_triton) == 1
    hooks = (None, None, None)
    constants = (1, 2)  # in the kernel's order
    before = (7, 1, 1, 5, kernel.function, kernel.packed_metadata, *hooks)
    assert kernel.by_launcher == [(*before, second.data_ptr(), 40, 0.25, *constants)]


def test_a_whole_number_among_floats(kernel: Kernel) -> None:
    for number in (1, 1.5):
        launch(kernel, (1, 1, 1), (ALIGNED,), (40,), (number,), A=1, B=2)
    (_, args, _), later = kernel.by_triton[0], kernel.by_launcher[0]
    assert type(args[-1]) is float
    assert later[-3] == 1.5


ALIGNED = torch.zeros(65)[:64]
OTHER: dict[str, tuple[Tensor, int, dict[str, int]]] = {
    "type": (torch.zeros(64, dtype=torch.bfloat16), 40, {"A": 1, "B": 2}),
    "alignment": (torch.zeros(65)[1:], 40, {"A": 1, "B": 2}),
    "one": (ALIGNED, 1, {"A": 1, "B": 2}),
    "divisible": (ALIGNED, 48, {"A": 1, "B": 2}),
    "wide": (ALIGNED, 2**31 + 8, {"A": 1, "B": 2}),
    "constant": (ALIGNED, 40, {"A": 2, "B": 2}),
    "exchanged constants": (ALIGNED, 40, {"A": 2, "B": 1}),
    "warps": (ALIGNED, 40, {"A": 1, "B": 2, "num_warps": 8}),
}


@pytest.mark.parametrize("case", OTHER)
def test_what_triton_compiles_for_is_told_apart(kernel: Kernel, case: str) -> None:
    x, number, options = OTHER[case]
    for _ in range(2):
        launch(kernel, (1, 1, 1), (ALIGNED,), (40,), A=1, B=2)
        launch(kernel, (1, 1, 1), (x,), (number,), **options)
    assert len(kernel.by_triton) == 2
    assert len(kernel.by_launcher) == 2
    launch(Kernel(), (1, 1, 1), (ALIGNED,), (40,), A=1, B=2)
    assert len(kernel.by_launcher) == 2


def test_which_pointer_is_off_matters(kernel: Kernel) -> None:
    off = torch.zeros(65)[1:]
    for pair in ((ALIGNED, off), (off, ALIGNED), (off, off)):
        launch(kernel, (1, 1, 1), pair, (), A=1, B=2)
    assert len(kernel.by_triton) == 3


def test_memory_is_bounded(kernel: Kernel, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(launcher, "_MEMORY_SIZE", 4)
    for number in range(11):
        launch(kernel, (1, 1, 1), (ALIGNED,), (number,), A=1, B=2)
        assert 0 < len(launcher._memory) <= 4


@triton.jit
def plain_kernel(x_ptr, A: tl.constexpr) -> None:
    tl.store(x_ptr, A)


def test_in_doubt_triton_starts_it(monkeypatch: pytest.MonkeyPatch) -> None:
    may_remember = launcher._may_remember
    monkeypatch.setattr(launcher, "_IS_KNOWN", True)
    runtime = triton.knobs.runtime
    assert may_remember(plain_kernel, 0)
    assert not may_remember(plain_kernel, -1)  # not on a GPU
    assert not may_remember(Kernel(), 0)  # as the interpreter's
    for hooks in (runtime.launch_enter_hook, runtime.launch_exit_hook):
        with monkeypatch.context() as patch:
            patch.setattr(hooks, "calls", [print])
            assert not may_remember(plain_kernel, 0)
    for name, value in {"debug": True, "add_stages_inspection_hook": print}.items():
        with monkeypatch.context() as patch:
            patch.setattr(runtime, name, value)
            assert not may_remember(plain_kernel, 0)
    with monkeypatch.context() as patch:
        patch.setattr(plain_kernel, "pre_run_hooks", [print])
        assert not may_remember(plain_kernel, 0)
    monkeypatch.setattr(launcher, "_IS_KNOWN", False)
    assert not may_remember(plain_kernel, 0)


def test_workspace() -> None:
    like = torch.zeros(1, dtype=torch.float64)
    parts = workspace(like, 5, 0, 64, 33)
    assert all(part.numel() >= size for part, size in zip(parts, (5, 0, 64, 33), strict=True))
    assert all(part.dtype == like.dtype and part.data_ptr() % 16 == 0 for part in parts)
    for number, part in enumerate(parts):
        part.fill_(number)
    assert all(bool((part == number).all()) for number, part in enumerate(parts))
