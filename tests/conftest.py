import multiprocessing
import os
import signal
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from typing import Any
from unittest import mock

import pytest
import torch

torch.set_num_threads(1)  # the tests run in several processes
# A job that a shell starts in the background ignores Ctrl-C, and so would all that is tested here.
signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(autouse=True)
def _seed() -> None:
    torch.manual_seed(12345)


@pytest.fixture(scope="session")
def interpreter() -> Iterator[Callable[..., Any]]:
    """Calls a function of the tests where Triton interprets the GPU's kernels: in a process of its
    own, as Triton decides so when it is imported."""
    environment = {"TRITON_INTERPRET": "1", "GRAPHRELU_BACKEND": "triton"}
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(1, context, torch.set_num_threads, (1,)) as pool:
        with mock.patch.dict(os.environ, environment):
            pool.submit(os.getpid).result()  # starts the process
        yield lambda function, *args: pool.submit(_seeded, function, *args).result()


def _seeded(function: Callable[..., Any], *args: Any) -> Any:
    """What a test finds there does not depend on those before it."""
    torch.manual_seed(12345)
    return function(*args)
