"""What is kept of a model beside the record."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from graphrelu.lab.engine.keep import read_look


def test_a_damaged_look(tmp_path: Path) -> None:
    path = tmp_path / "look.npz"
    np.savez_compressed(path, seed=3, prediction=np.zeros(12))
    assert read_look(path)["prediction"].shape == (12,)
    path.write_bytes(path.read_bytes()[:-100])
    with pytest.raises(ValueError, match=r"look\.npz is not a look inside a model \(.*\)\.$"):
        read_look(path)
