"""The module on the GPU's kernels, in Triton's interpreter: `test_triton.py` starts it."""

from unittest import mock

import torch
from hypothesis import example, given
from hypothesis import strategies as st

from graphrelu.ops.dispatch import backend
from graphrelu.ops.triton import diffuse
from tests.property.comparison import assert_is_the_reference
from tests.property.strategies import LOW_PRECISION, Graph, Setup, cases


@given(
    case=cases(batched=False, largest=10.0),
    dtype=st.sampled_from(LOW_PRECISION),
    from_entries=st.sampled_from([1, 10**9]),
)
@example(case=(Graph((1,)), Setup()), dtype=torch.float, from_entries=0)  # slices of nothing
def test_one_graph(case: tuple[Graph, Setup], dtype: torch.dtype, from_entries: int) -> None:
    """In slices or not."""
    assert backend(torch.ones(1)) == "triton"
    with mock.patch.object(diffuse, "FROM_ENTRIES", from_entries):
        assert_is_the_reference(*case, dtype)


@given(case=cases(batched=True, largest=10.0), dtype=st.sampled_from(LOW_PRECISION))
def test_batches(case: tuple[Graph, Setup], dtype: torch.dtype) -> None:
    assert_is_the_reference(*case, dtype)
