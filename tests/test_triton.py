"""The GPU kernels, in Triton's interpreter and in its compiler."""

import re
from collections.abc import Callable
from typing import Any
from unittest import mock

import pytest
import torch
import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from graphrelu.ops.triton import apply, diffuse, fused, project
from tests import test_sweep, triton_cases

# How the launchers call the kernels: types of pointers that are not float32, other constants.
POINTERS = dict.fromkeys(["batch_ptr"], "*i64")
POINTERS |= dict.fromkeys(["rowptr_ptr", "col_ptr", "arrived_ptr"], "*i32")
POINTERS |= dict.fromkeys(["kept_nodes_ptr", "kept_channels_ptr"], "*i1")
FLOATS = (
    "a",
    "b",
    "alpha",
    "scale",
    "negative_slope",
    "base_first",
    "base_rest",
    "temperature",
    "gamma_max",
)
CONSTANTS = {"C": 300, "COLS": 128, "ROWS": 16, "STAGES": 1}
CONSTANTS |= {"ENTRIES": 8, "NODES": 64}
KERNELS = [
    value
    for module in (project, diffuse, apply, fused)
    for name, value in vars(module).items()
    if isinstance(value, triton.JITFunction) and name.endswith("_kernel")
]


@pytest.mark.parametrize("case", triton_cases.CASES)
def test_kernels(case: str, interpreter: Callable[..., Any]) -> None:
    interpreter(triton_cases.check, case, "cpu")


@pytest.mark.parametrize("kind", test_sweep.KINDS)
def test_graphs(kind: str, interpreter: Callable[..., Any]) -> None:
    """What the other implementations are tested on."""
    interpreter(test_sweep.check, "GReLU", torch.float32, kind)


def compiled(
    kernel: triton.JITFunction,
    constants: dict[str, Any],
    features: str = "*fp32",
    integer: str = "i32",
    capability: int = 90,
    **options: int,
) -> Any:
    """A kernel as NVIDIA's GPUs of this capability get it."""
    signature, chosen = {}, {}
    for parameter in kernel.params:
        name = parameter.name
        if parameter.is_constexpr:
            signature[name], chosen[name] = "constexpr", constants[name]
        elif name.endswith("_ptr"):
            is_features = name in ("x_ptr", "y_ptr", "grad_x_ptr")
            signature[name] = POINTERS.get(name, features if is_features else "*fp32")
        else:
            signature[name] = "fp32" if name in FLOATS else integer
    target = GPUTarget("cuda", capability, 32)
    return triton.compile(ASTSource(kernel, signature, chosen), target=target, options=options)


@pytest.mark.filterwarnings("ignore:TRITON_DEFAULT_FP_FUSION")
@pytest.mark.parametrize("kernel", KERNELS, ids=lambda kernel: kernel.__name__)
def test_kernels_compile_for_a_gpu(kernel: triton.JITFunction) -> None:
    """The interpreter forgives what the compiler does not. Counts take 64 bits where they need
    them, and a program's number never overflows: it is compared, added to a pointer, or widened
    before anything else."""
    cases = [(1, "*fp32", False, "i32"), (2, "*bf16", True, "i32"), (2, "*fp32", True, "i64")]
    for K, features, flag, integer in cases:
        constants = {**CONSTANTS, "K": K, "BATCHED": flag, "DROPS": flag}
        asm = compiled(kernel, constants, features, integer).asm
        assert asm["ptx"]
        lines = [line.split(" loc(")[0] for line in asm["ttir"].splitlines()]
        programs = re.findall(r"(%\w+) = tt.get_program_id", "\n".join(lines))
        uses = re.compile(rf"(?:{'|'.join(programs)})\b")
        for line in lines:
            if "tt.get_program_id" not in line and uses.search(line):
                assert re.search(r"arith\.(extsi|cmpi)|tt\.addptr", line), line


@pytest.mark.filterwarnings("ignore:TRITON_DEFAULT_FP_FUSION")
@pytest.mark.parametrize("capability", [75, 80, 90])
def test_programs_that_wait_for_each_other_fit_on_any_gpu(capability: int) -> None:
    """By registers, shared memory and threads; else some would wait for ever for the others."""
    constants = {"ROWS": diffuse._ROWS, "ENTRIES": diffuse._ENTRIES}
    options = {"num_warps": diffuse._WARPS, "maxnreg": diffuse._REGISTERS}
    program = compiled(diffuse.column_kernel, constants, capability=capability, **options)
    bound = re.findall(r"\.maxnreg (\d+)", program.asm["ptx"])
    assert bound == [str(diffuse._REGISTERS)]
    assert diffuse._PROGRAMS * diffuse._WARPS * 32 * diffuse._REGISTERS <= 1 << 16
    assert diffuse._PROGRAMS * program.metadata.shared <= 32 << 10  # the least that a GPU has


def test_no_more_programs_than_a_gpu_has_threads_for() -> None:
    for threads, programs in ((2048, 8), (1536, 8), (1024, 8), (512, 4)):
        gpu = mock.Mock(max_threads_per_multi_processor=threads, multi_processor_count=10)
        diffuse._num_programs.cache_clear()
        with mock.patch.object(torch.cuda, "get_device_properties", lambda _, gpu=gpu: gpu):
            assert diffuse._num_programs(torch.device("cuda:0")) == 10 * programs
    diffuse._num_programs.cache_clear()


def test_programs_that_wait_for_each_other_are_started_together() -> None:
    """CUDA refuses a cooperative launch that does not fit, instead of waiting for ever."""
    kernel, matrix = mock.MagicMock(), (torch.zeros(1001), torch.ones(1), torch.ones(1))
    with (
        mock.patch.object(diffuse, "column_kernel", kernel),
        mock.patch.object(diffuse, "_num_programs", return_value=4),
        mock.patch.object(diffuse, "HAS_COOPERATIVE_LAUNCH", True),
    ):
        diffuse.forward(torch.ones(1000, 1), matrix, 0.1, 3)
    assert kernel.__getitem__.call_args.args[0] == (4,)
    options = kernel.__getitem__.return_value.call_args.kwargs
    assert options["launch_cooperative_grid"]
    assert options["maxnreg"] == diffuse._REGISTERS
