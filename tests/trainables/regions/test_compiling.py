"""Compiled through PyTorch's own backend, where there is a C++ compiler."""

import shutil

import pytest
import torch

from tests.support.box import built
from trainables.regions.compiling import Compiler, compiling
from trainables.testing.arms import having
from trainables.testing.cases import batch, trained

CXX = next(filter(shutil.which, ("g++", "clang++", "c++")), None)
SMALL = {"name": "transformer", "layers": 2, "width": 8, "heads": 2}


def test_nothing_is_compiled_outside() -> None:
    compiler = Compiler("aot_eager")
    with compiler.running():
        assert compiling()
    assert not compiling()
    trained(built(SMALL), batch())
    assert (compiler.graphs, compiler.seconds) == (0, 0.0)


def test_more_graphs_than_a_training_has_ways_are_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("trainables.regions.compiling.MOST_GRAPHS", 1)
    compiler = Compiler("eager")
    with compiler.running():
        trained(built(SMALL), batch())
        wider = built(SMALL | {"width": 12})
        with pytest.raises(torch._dynamo.exc.FailOnRecompileLimitHit):
            trained(wider, batch())


@pytest.mark.slow
@pytest.mark.skipif(CXX is None, reason="there is no C++ compiler, which PyTorch's backend needs on a CPU")
def test_a_layer_in_generated_code_is_what_it_is() -> None:
    compiler = Compiler()
    model = built(having(SMALL | {"layers": 1}, dropout=0.2, attention_dropout=0.1))
    for step, lengths in enumerate(((5, 1, 9, 3), (4, 2))):
        whole, gradients = trained(model, batch(lengths), step)
        with compiler.running():
            output, others = trained(model, batch(lengths), step)
        torch.testing.assert_close(output.loss, whole.loss)
        torch.testing.assert_close(others, gradients)
    assert compiler.graphs > 0
    assert compiler.seconds > 0
