"""The forms that the study of contexts compares, against their equation."""

import pytest
import torch

from graphrelu.functional import graph_mean
from graphrelu.lab.models.activations import ACTIVATIONS
from scripts.context_forms import MODULES, neighbours
from scripts.context_study import CANDIDATES, FORMS, TUNING, config
from tests.helpers import batch_of_graphs


@pytest.mark.parametrize("name", [*CANDIDATES, "control"])
def test_a_form_is_its_equation(name: str) -> None:
    module, options = FORMS[name]
    act = MODULES[module](6, **options).double()
    edge_index, batch = batch_of_graphs([5, 1, 9])
    x = torch.randn(15, 6, dtype=torch.double)
    assert torch.equal(act(x, edge_index, batch=batch), x.relu())  # until it is trained
    torch.manual_seed(0)
    for parameter in act.parameters():
        if parameter.requires_grad:
            torch.nn.init.normal_(parameter, std=0.2)
    degree = torch.zeros(len(x), dtype=torch.double)
    degree.index_add_(0, edge_index[1], torch.ones(edge_index.size(1), dtype=torch.double))
    scale = degree.clamp(min=1).rsqrt()
    around = torch.zeros_like(x)
    source, target = edge_index
    around.index_add_(0, target, (scale[source] * scale[target])[:, None] * x[source])
    if name == "control":
        expected = (x + torch.tanh(8 * act.weight) * around).relu()
        assert torch.allclose(act(x, edge_index, batch=batch), expected)
        return
    graph, _, size = act._read(x, edge_index, None, batch, None)
    assert torch.allclose(neighbours(x, graph), around)
    logits = act.channel_mlp.bias + act.neighbour_weight * around.unsqueeze(1)
    if options["context"] == "both":
        mean = graph_mean(x, graph.mass, batch, size)[batch]
        logits = logits + act.channel_mlp.weight * mean.unsqueeze(1)
    gamma = act.gamma(x, edge_index, batch=batch)
    a1, a2, b1, b2 = (gamma * torch.tanh(8 * logits[:, i]) for i in range(4))
    expected = torch.maximum((1 + a1) * x + b1, a2 * x + b2)
    assert torch.allclose(act(x, edge_index, batch=batch), expected)


def test_settings_are_the_same_for_every_form(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, module in MODULES.items():
        monkeypatch.setitem(ACTIVATIONS, name, module)
    for dataset in TUNING:
        keys = {config(dataset, "gcn", name).cell_key() for name in FORMS}
        assert len(keys) == 1
