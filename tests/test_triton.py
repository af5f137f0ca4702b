"""The GPU kernels, in Triton's interpreter and in its compiler."""

import re

import pytest
import torch
import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from graphrelu import GReLU
from graphrelu.lab.models import dropout, kernels
from graphrelu.ops import dispatch
from graphrelu.ops.dispatch import backend
from graphrelu.ops.triton import apply, diffuse, project
from tests.helpers import assert_close, interpreted, opened, random_graph


def test_kernels_against_the_reference() -> None:
    done = interpreted("-m", "tests.triton_cases")
    assert done.stdout == "86 cases passed on cpu\n", done.stderr


def test_attention_against_the_reference() -> None:
    done = interpreted("-m", "tests.lab.models.attention_cases")
    assert done.stdout == "17 cases passed on cpu\n", done.stderr


def test_module_on_the_kernels() -> None:
    """The module's own tests once more, with the GPU's implementation behind it."""
    chosen = "half_precision or every_parameter or degenerate or empty_graphs"
    done = interpreted("-m", "pytest", "tests/test_grelu.py", "-k", chosen)
    assert done.returncode == 0, done.stdout


# How the launchers call the kernels: types of pointers that are not float32, other constants.
POINTERS = dict.fromkeys(["ptr_ptr", "row_ptr", "seed_ptr", "step_ptr"], "*i64") | dict.fromkeys(
    ["rowptr_ptr", "col_ptr", "order_ptr"], "*i32"
)
FLOATS = ("a", "b", "base_first", "base_rest")
CONSTANTS = {"C": 300, "COLS": 128, "ROWS": 16, "BLOCK": 64}
CONSTANTS |= {"J": 1, "K_PADDED": 4, "BATCHED": True, "ACCUMULATE": True}
CONSTANTS |= {
    "STAGES": 1,
    "H": 3,
    "HEADS": 4,
    "ENTRIES": 8,
    "PAIRS": 16,
    "SLOPE": 0.2,
    "SCALE": 2.5,
    **dropout.HASH,
}


def all_kernels() -> list[triton.JITFunction]:
    modules = (project, diffuse, apply, kernels)
    found = [value for module in modules for value in vars(module).values()]
    return [
        f for f in found if isinstance(f, triton.JITFunction) and f.__name__.endswith("_kernel")
    ]


@pytest.mark.filterwarnings("ignore:TRITON_DEFAULT_FP_FUSION")
@pytest.mark.parametrize("kernel", all_kernels(), ids=lambda kernel: kernel.__name__)
def test_kernels_compile_for_a_gpu(kernel: triton.JITFunction) -> None:
    """The interpreter forgives what the compiler does not. Counts take 64 bits where they need
    them, and a program's number never overflows: it is compared, added to a pointer, or widened
    before anything else."""
    flags = ["GATHERS", "ORDERED", "ADDS"]
    cases = [(1, "*fp32", False, "i32"), (2, "*bf16", True, "i32"), (3, "*fp32", True, "i64")]
    for K, features, flag, integer in cases:
        constants = {**CONSTANTS, "K": K, **dict.fromkeys(flags, flag)}
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
        source = ASTSource(kernel, signature, chosen)
        compiled = triton.compile(source, target=GPUTarget("cuda", 90, 32))
        assert compiled.asm["ptx"]
        lines = [line.split(" loc(")[0] for line in compiled.asm["ttir"].splitlines()]
        programs = re.findall(r"(%\w+) = tt.get_program_id", "\n".join(lines))
        uses = re.compile(rf"(?:{'|'.join(programs)})\b")
        for line in lines:
            if "tt.get_program_id" not in line and uses.search(line):
                assert re.search(r"arith\.(extsi|cmpi)|tt\.addptr", line), line


def test_backends(monkeypatch: pytest.MonkeyPatch) -> None:
    x, edge_index = torch.randn(9, 4), random_graph(9, 30)
    batch = torch.zeros(9, dtype=torch.long)
    assert backend(x) == "torch"
    for variant in "ABCDEFG":
        act = opened(GReLU.variant(variant, 4))
        outs = [act(x, edge_index), act(x, edge_index, batch=batch)]
        with monkeypatch.context() as patch:
            patch.setenv("GRAPHRELU_BACKEND", "reference")
            patch.setattr(dispatch, "apply", None)  # not needed by the reference
            assert_close(act(x, edge_index), outs[0], 1e-6)
            assert_close(act(x, edge_index, batch=batch), outs[1], 1e-6)
    monkeypatch.setenv("GRAPHRELU_BACKEND", "cuda")
    with pytest.raises(ValueError, match="GRAPHRELU_BACKEND must be one of reference, torch, trit"):
        act(x, edge_index)
