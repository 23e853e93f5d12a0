"""Where settings of task and training act in a trial, and in what two systems differ there.

What they do is declared (`trainables.acting`), and seen in the data and in rehearsed training.
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from math import isclose
from typing import Any

from orchestrator.plan.drawn_data import acting_on_data
from orchestrator.plan.probe import Probe
from orchestrator.plan.settings import System
from search_spaces.dimensions import Space
from trainables.acting import TrialFacts, acting
from trainables.assembly import batch_cost
from trainables.task_catalog import splits
from trainables.training.likes import UNSEEN, adapts, compares
from trainables.training.schedule import beta1, learning_rate

STEPS_TRIED = 2000
"""Of a longer training the learning rate is looked at on so many steps, and at its ends and turns."""


@dataclass(frozen=True, slots=True)
class Sweep:
    """What of a spec decides which settings of task and training can make a difference."""

    confirmed: bool = True
    stopped: bool = False
    """Whether an early stopper ends trials."""
    tests: tuple[str, ...] = ()
    """Test splits that are read."""
    searched: Space = field(default_factory=Space)
    """What the search of an arm varies that drops nothing."""

    def longest(self, *systems: System) -> int:
        """Tokens of the longest input that trials of `systems` read."""
        read = [info for system in systems for info in splits(system.task)]
        ends = [info.length_max for info in read if info.role != "test" or info.name in self.tests]
        return max([*ends, *(system.shape.length_max for system in systems)])


def declared_effects(
    probe: Probe, before: System, after: System, sweep: Sweep, *, rehearsed: bool = True
) -> list[str]:
    """Where settings of task and training make a difference that one step need not show.

    `rehearsed` leaves out what no training obeys: nothing must be shown by that alone.
    """
    if before.train == after.train and before.task == after.task:
        return []
    obeyed = _as_it_trains(probe, before, after) if rehearsed else after
    steps = sorted({*_tried(before), *_tried(obeyed)})
    old, new = declared(before, sweep, steps), declared(obeyed, sweep, steps)
    changed = {
        where: {name for name in new[where] if not _equal(old[where].get(name), new[where][name])}
        for where in new
    }
    learned = changed["steps"] and changed["steps"] - probe.forward(probe.narrow(after)).objective_reads
    decides = bool(changed["measuring"]) and (
        sweep.stopped or any(_compares(system, sweep) for system in (before, after))
    )
    if changed["sampling"]:
        # Weights are never selected by what is written; early stoppers may go by it.
        changed["measuring"] |= changed["sampling"]
        decides = sweep.stopped or (decides and changed["measuring"] != changed["sampling"])
    trained = learned or changed["rates"] or changed["selecting"] or decides
    return [
        *(["task"] if changed["task"] or old["task"].keys() != new["task"].keys() else []),
        *(["training"] if trained else []),
        *(["measuring"] if changed["measuring"] and not decides else []),
        *(["writing"] if changed["writing"] else []),
    ]


def _equal(one: Any, other: Any) -> bool:
    """Whether two values of a setting are the same, up to what a float32 loses in rounding."""
    if isinstance(one, float) and isinstance(other, float):
        return isclose(one, other, rel_tol=UNSEEN)
    if isinstance(one, list | tuple) and isinstance(other, list | tuple):
        return len(one) == len(other) and all(map(_equal, one, other))
    return bool(one == other)


def _as_it_trains(probe: Probe, before: System, after: System) -> System:
    """`after` without the changed settings of training that no training obeys, whatever is declared."""
    old, new = before.train, after.train
    changed = (name for name in type(new).model_fields if getattr(old, name) != getattr(new, name))
    idle = {name: getattr(old, name) for name in changed if not probe.rehearsals.acts(name)}
    return replace(after, train=new.model_copy(update=idle)) if idle else after


def declared(system: System, sweep: Sweep, steps: Sequence[int] = ()) -> dict[str, dict[str, Any]]:
    """Settings of task and training as far as they act, as values that do the same, by where they show.

    Rates are those at `steps`, if not given some that are the same for every schedule of as many steps.
    """
    train = system.train
    infos = splits(system.task)
    facts = TrialFacts(
        head=system.shape.head,
        confirmed=sweep.confirmed,
        stopped=sweep.stopped,
        valid_examples=next((info.examples for info in infos if info.role == "valid"), None),
        length=_one_length(system),
        length_min=next((info.length_min for info in infos if info.role == "train"), 1),
        train_tokens=_train_tokens(system),
        answer_length_max=system.shape.answer_length_max,
        batch_cost=batch_cost(system.model) is not None,
    )
    found = acting(train, facts)
    asked = [step for step in steps or _spread(train.steps) if step < train.steps]
    rates = [learning_rate(train, step) for step in asked]
    found["rates"] = {
        # By rates so small that all steps together are lost in rounding nothing is learned.
        "learning rate": rates if max(rates, default=0.0) * train.steps > UNSEEN else None,
        # After one step each moment is the gradient's own, whatever share of it is kept.
        "beta1": [_share(beta1(train, step)) for step in asked] if train.steps > 1 else None,
        "beta2": _share(train.betas[1]) if train.steps > 1 and adapts(train) else None,
    }
    read = [info.name for info in infos if info.role != "test"]
    # How many steps samples take is in the data; their bound is for who builds a model.
    shape = {name: value for name, value in asdict(system.shape).items() if name != "steps_max"}
    found["task"] = {**acting_on_data(system, [*read, *sweep.tests]), "shape": shape}
    return found


def _share(kept: float) -> float:
    """What of a moment is kept beside the gradient; none if it is lost in rounding."""
    return kept if kept >= UNSEEN else 0.0


def _train_tokens(system: System) -> int | None:
    """Tokens of all training samples, each as long as the longest; None where that is not known."""
    train = next((info for info in splits(system.task) if info.role == "train"), None)
    if train is None or train.examples is None:
        return None
    return train.examples * max(train.length_max, system.shape.answer_length_max or 0)


def _one_length(system: System) -> int | None:
    """Tokens of every training input where all have as many; None where answers have tokens of their own."""
    train = next((info for info in splits(system.task) if info.role == "train"), None)
    if train is None or system.shape.head == "sequence" or train.length_min != train.length_max:
        return None
    return train.length_max


def _compares(system: System, sweep: Sweep) -> bool:
    """Whether anything of a trial goes by what validations measure."""
    found = acting(system.train, TrialFacts(system.shape.head, sweep.confirmed))
    values = {name: value for fields in found.values() for name, value in fields.items()}
    return compares(system.train.model_copy(update=values))


def _tried(system: System) -> list[int]:
    """The steps at which the rates of one system are looked at, those near its turns among them."""
    train = system.train
    turns = (0, train.warmup_steps, train.warmup_steps + train.hold_steps, train.steps)
    near = {turn + shift for turn in turns for shift in (-2, -1, 0, 1)}
    return [*_spread(train.steps), *(each for each in near if 0 <= each < train.steps)]


def _spread(steps: int) -> range:
    return range(0, steps, max(1, steps // STEPS_TRIED))
