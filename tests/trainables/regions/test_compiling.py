"""Compiled through PyTorch's own backend, where there is a C++ compiler."""

import shutil
from collections.abc import Callable
from typing import Any

import pytest
import torch

from tests.support.box import MODELS, built
from trainables.regions.compiling import Compiler, compiling
from trainables.testing.arms import BASE, having
from trainables.testing.cases import batch, trained

CXX = next(filter(shutil.which, ("g++", "clang++", "c++")), None)
SMALL = {"name": "transformer", "layers": 2, "width": 8, "heads": 2}


def small(name: str) -> Any:
    """The small version of a model, with dropout."""
    return built(having(MODELS[name]().every_arm()[BASE], dropout=0.2, attention_dropout=0.1))


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


def test_a_size_of_one_that_comes_late_is_not_compiled_for(monkeypatch: pytest.MonkeyPatch) -> None:
    ran: list[int] = []

    class Noting(Compiler):
        def compiled(self, function: Callable[..., Any]) -> Callable[..., Any]:
            ran.append(1)
            return super().compiled(function)

    monkeypatch.setattr("trainables.regions.compiling.FIRST_STEPS", 2)
    compiler, model = Noting("eager"), small("looped")
    counts = []
    for step, lengths in enumerate(((5, 1, 9, 3), (6,), (4,), (1, 1), (3, 3), (1,))):
        ran.clear()
        whole, gradients = trained(model, batch(lengths), step)
        with compiler.running():
            output, others = trained(model, batch(lengths), step)
        torch.testing.assert_close(output.loss, whole.loss)
        torch.testing.assert_close(others, gradients)
        counts.append(len(ran))
    # One row has been met, rows of one token have not: less of these is compiled.
    every, *_, columns, _, token = counts
    assert counts == [every, every, every, columns, every, token]
    assert every > columns >= token
    assert compiler.graphs > 0


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.skipif(CXX is None, reason="there is no C++ compiler, which PyTorch's backend needs on a CPU")
def test_generated_code_is_what_it_is_and_the_same_for_all_lengths(monkeypatch: pytest.MonkeyPatch) -> None:
    # The C++ compiler optimises nothing: nobody measures what it makes.
    monkeypatch.setenv("TORCHINDUCTOR_DEBUG_COMPILE", "1")
    monkeypatch.setattr("trainables.regions.compiling.FIRST_STEPS", 1)
    compiler, graphs = Compiler(), 0
    model = small("looped")
    for step, lengths in enumerate(((5, 1, 9, 3), (4, 2), (6,), (3, 3), (8, 2, 7, 2, 5, 1), (1,))):
        whole, gradients = trained(model, batch(lengths), step)
        with compiler.running():
            output, others = trained(model, batch(lengths), step)
        torch.testing.assert_close(output.loss, whole.loss)
        torch.testing.assert_close(others, gradients)
        graphs = graphs or compiler.graphs
    assert compiler.graphs == graphs > 0
    assert compiler.seconds > 0
