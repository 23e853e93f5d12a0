"""Forms of compiled layers that the small versions of their models do not have.

Choices that meet in no branch are tried together: to compile takes seconds.
"""

from typing import Any

import pytest

from tests.support.box import MODELS, built
from trainables.regions.compiling import Compiler
from trainables.testing.arms import BASE, having
from trainables.testing.cases import batch, check_same, trained
from trainables.testing.contract import check_close

DROPPED = {
    "ndr": {"dropout": 0.2, "attention_dropout": 0.1},
    "crvnn": {"dropout": 0.2, "cell_dropout": 0.1},
}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "changed"),
    [
        ("ndr", {"direction": False, "pooling": "start", "gate": False}),
        ("ndr", {"normalise_rows": False, "proposal": "tanh", "dropout": 0.0, "gate_dropout": 0.0}),
        ("crvnn", {"cell": "lstm", "tanh_gelu": True}),
        ("crvnn", {"activation": "relu", "transition_features": None, "window": 1}),
        ("crvnn", {"modulated": False, "shared_norm": True, "halt": None, "cell_dropout": 0.0}),
    ],
    ids=str,
)
def test_every_form_of_a_layer_is_compiled(name: str, changed: dict[str, Any]) -> None:
    model = built(having(MODELS[name]().every_arm()[BASE], **DROPPED[name] | changed))
    compiler = Compiler("eager")
    output, gradients = trained(model, batch())
    with compiler.running():
        again, others = trained(model, batch())
    assert compiler.graphs > 0
    check_same(again.encoded, output.encoded, "compiled, it must be the same")
    assert others.keys() == gradients.keys()
    for parameter, gradient in gradients.items():
        check_close(others[parameter], gradient, f"compiled, it must be the same: {parameter}")
