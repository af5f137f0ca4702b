"""The module on the GPU's kernels, in Triton's interpreter: `test_triton.py` starts it."""

import torch
from hypothesis import given
from hypothesis import strategies as st

from graphrelu.ops.dispatch import backend
from tests.property.comparison import assert_is_the_reference
from tests.property.strategies import LOW_PRECISION, Graph, Setup, cases


@given(case=cases(batched=False, largest=10.0), dtype=st.sampled_from(LOW_PRECISION))
def test_one_graph(case: tuple[Graph, Setup], dtype: torch.dtype) -> None:
    assert backend(torch.ones(1)) == "triton"
    assert_is_the_reference(*case, dtype)


@given(case=cases(batched=True, largest=10.0), dtype=st.sampled_from(LOW_PRECISION))
def test_batches(case: tuple[Graph, Setup], dtype: torch.dtype) -> None:
    assert_is_the_reference(*case, dtype)
