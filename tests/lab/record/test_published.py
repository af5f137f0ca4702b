"""The paper's numbers are found under our names."""

from __future__ import annotations

import pytest

from graphrelu.lab.record.published import Published, published
from graphrelu.lab.record.recipes import node_table


def test_every_node_cell_of_the_paper_is_found() -> None:
    found = {
        (c.dataset, c.backbone, c.activation): published(
            "node_classification", c.dataset, c.backbone, c.activation
        )
        for c in node_table()
    }
    absent = {cell[:2] for cell, numbers in found.items() if numbers is None}
    # The paper ran out of memory there.
    assert absent == {("blogcatalog", "cheb"), ("flickr", "cheb")}
    present = [numbers for numbers in found.values() if numbers is not None]
    assert len(present) == 168
    assert all(numbers.best is not None for numbers in present)
    assert all(20 < numbers.mean < 86 and 0 < numbers.std < 8 for numbers in present)


def test_numbers_by_hand() -> None:
    assert published("node_classification", "cora", "gcn", "grelu") == Published(81.8, 1.8, 83.0)
    assert published("node_classification", "PubMed", "GAT", "LReLU") == Published(78.7, 1.7, 81.2)
    assert published("node_classification", "flickr", "arma", "prelu") == Published(45.9, 3.5, 53.1)
    assert published("graph_classification", "mutag", "gin", "grelu") == Published(89.5, 7.4, None)
    assert published("ablation", "flickr", "gcn", "grelu-b") == Published(53.4, 1.8, None)
    assert published("ablation", "flickr", "gcn", "sgc") == Published(48.6, 1.3, None)


def test_what_the_paper_does_not_have() -> None:
    assert published("node_classification", "digits", "gcn", "relu") is None
    assert published("ablation", "cora", "gcn", "relu") is None
    with pytest.raises(ValueError, match=r"^The paper has no table 'node'; choose from node_class"):
        published("node", "cora", "gcn", "relu")
