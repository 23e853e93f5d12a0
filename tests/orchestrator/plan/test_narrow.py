"""What saves a plan time and must change nothing: weights that are drawn once, models that are narrow."""

from typing import Any

import pytest
import torch

from orchestrator.plan.drawn_once import LEAST, DrawnOnce
from orchestrator.plan.effects import Sweep, differ, effects, shows
from orchestrator.plan.probe import NARROW, Probe
from orchestrator.plan.settings import System, checked
from trainables.assembly import build_model
from trainables.streams import torch_stream

WIDE = {"name": "universal", "width": 256, "heads": 4, "max_layers": 3, "gate": True}


def system(**model: Any) -> System:
    raw = {"task": {"name": "listops"}, "model": {**WIDE, **model}, "train": {"steps": 100, "batch_size": 4}}
    found = checked(raw)
    assert isinstance(found, System), found
    return found


def test_weights_that_were_drawn_before_are_the_same_bits() -> None:
    made, once = system(), DrawnOnce()
    plain = build_model(made.model, made.shape, 0).state_dict()
    for _ in range(2):
        with once:
            model = build_model(made.model, made.shape, 0)
        assert all(torch.equal(plain[name], tensor) for name, tensor in model.state_dict().items())
    with once:
        other = build_model(made.model, made.shape, 1).state_dict()
    assert any(not torch.equal(plain[name], tensor) for name, tensor in other.items())


@pytest.mark.parametrize("bounds", [(-1.0, 1.0), (0.0, 3.0)])
def test_a_generator_goes_on_as_if_it_had_drawn(bounds: tuple[float, float]) -> None:
    def drawn() -> list[torch.Tensor]:
        stream = torch_stream(0, "some")
        first = torch.empty(LEAST).uniform_(*bounds, generator=stream)
        again = torch.empty(LEAST).normal_(0, 1, generator=stream)
        return [first, again, torch.randn(3, generator=stream)]

    plain, once = drawn(), DrawnOnce()
    for _ in range(2):
        with once:
            found = drawn()
        assert all(map(torch.equal, plain, found))


def test_every_width_is_halved_and_nothing_else_changes() -> None:
    probe = Probe()
    wide, narrow = system(gate_width=384), probe.narrow(system(gate_width=384))
    before, after = wide.settings["model"], narrow.settings["model"]
    assert {name for name, value in after.items() if value != before[name]} == {"width", "gate_width"}
    assert (after["width"], after["gate_width"]) == (NARROW, 48)
    assert probe.narrow(narrow) is narrow


def test_a_difference_in_widths_alone_is_seen_in_the_models_as_they_are() -> None:
    one, other = system(gate_width=128), system(gate_width=256)
    probe = Probe()
    assert probe.narrow(one).settings == probe.narrow(other).settings
    assert differ(probe, one, other, Sweep())


@pytest.mark.parametrize("written", [{"head_width": 64}, {"feedforward_width": 512}, {"gate_width": 512}])
def test_a_width_that_is_written_out_is_no_difference(written: dict[str, int]) -> None:
    probe = Probe()
    assert not differ(probe, system(), system(**written), Sweep())
    assert not shows(effects(probe, system(), system(**written), Sweep()))


def test_other_differences_are_found_without_running_the_wide_models() -> None:
    widths: set[int] = set()

    class Watching(Probe):
        def _run(self, made: System, point: int) -> Any:
            widths.add(made.settings["model"]["width"])
            return super()._run(made, point)

    assert differ(Watching(), system(), system(gate=False), Sweep())
    assert widths == {NARROW}
