"""Which trainings are compiled."""

from typing import Any

import pytest

from tests.trainables.training.fakes import FakeSources
from tests.trainables.training.steps import ROWS, SHAPES, check_same, learner, small, stepped
from tests.trainables.training.test_workload import job, repeatable, run
from trainables.assembly import model_config
from trainables.data.synthetic import synthetic_batch
from trainables.regions.compiling import Compiler
from trainables.training import Training, workload
from trainables.training.compiled import LONG_ENOUGH, compiled
from trainables.training.config import train_config

GUT = {"name": "universal", "width": 512, "heads": 2}
TLB = {"name": "tlb", "width": 512, "heads": 2}
CRVNN = {"name": "crvnn", "width": 128}


@pytest.mark.parametrize(
    ("train", "model", "device", "expected"),
    [
        ({}, {}, "cuda", False),
        ({"compile": True}, {}, "cpu", True),
        ({"compile": "auto"}, {}, "cuda", True),
        ({"compile": "auto"}, GUT, "cuda", False),
        ({"compile": True}, GUT, "cuda", True),
        ({"compile": "auto", "steps": LONG_ENOUGH - 1}, {}, "cuda", False),
        ({"compile": "auto"}, TLB | {"width": 504}, "cuda", False),
        ({"compile": "auto"}, {}, "cpu", False),
        ({"compile": "auto", "checkpoint_activations": True}, {}, "cuda", False),
        ({"compile": "auto"}, CRVNN, "cuda", True),
        ({"compile": "auto"}, CRVNN | {"width": 120}, "cuda", False),
        ({"compile": "auto"}, {"name": "ndr", "width": 512}, "cuda", True),
        ({"compile": "auto"}, {"name": "looped", "width": 512}, "cuda", False),
        ({"compile": "auto"}, TLB | {"attention": "flash"}, "cuda", False),
    ],
)
def test_by_itself_where_it_pays(
    train: dict[str, Any], model: dict[str, Any], device: str, expected: bool
) -> None:
    config = train_config({"steps": LONG_ENOUGH} | train)
    assert compiled(model_config(model or TLB), config, device) is expected


@pytest.mark.parametrize(
    ("model", "why"),
    [
        ({"name": "sut"}, "its experts"),
        ({"name": "crvnn", "structure": "balanced"}, "the host plans"),
        ({"name": "crvnn", "structure": "left-to-right"}, "the host plans"),
        ({"name": "crvnn", "retriever": "product"}, "the gradient of running products"),
        ({"name": "ndr", "geometric": False}, "relative attention"),
    ],
)
def test_what_cannot_be_compiled_says_why(model: dict[str, Any], why: str) -> None:
    said = rf"train\.compile must be false .*, got {model['name']}: {why}.*; drop train"
    with pytest.raises(ValueError, match=said):
        compiled(model_config(model), train_config({"steps": 1, "compile": True}), "cpu")


def test_time_of_compiling_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workload, "Sources", FakeSources)
    monkeypatch.setattr(workload, "Compiler", lambda: Compiler("eager"))
    plain, shown = (run(Training(job(model=GUT | {"width": 8}, compile=switch))) for switch in (False, True))
    first, *others = [each.metrics.pop("train/compile_seconds") for each in shown]
    assert first > 0, "masks are drawn by a region"
    assert others == [first] * len(others), "nothing is compiled later"
    assert [*map(repeatable, shown)] == [*map(repeatable, plain)]


@pytest.mark.slow
def test_layers_that_write_answers_are_what_they_are_in_parts_too() -> None:
    shape = SHAPES["sequence"]
    raw, batch = small("transformer", shape), synthetic_batch(shape, ROWS, 9, seed=1)
    compiled = learner(raw, shape, accumulate=2)
    compiled.compiler = Compiler("eager")
    check_same(stepped(compiled, batch), stepped(learner(raw, shape, accumulate=2), batch))
    assert compiled.compiler.graphs > 0
    assert compiled.compiler.seconds > 0
