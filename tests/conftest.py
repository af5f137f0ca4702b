import signal

import pytest
import torch

torch.set_num_threads(1)  # the tests run in several processes
# A job that a shell starts in the background ignores Ctrl-C, and so would all that is tested here.
signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(autouse=True)
def _seed() -> None:
    torch.manual_seed(12345)
