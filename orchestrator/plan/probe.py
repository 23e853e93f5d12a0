"""Builds systems and runs them once on two synthetic examples, to see what a change of settings changes.

Two systems that differ only in what has no effect agree in every bit: initial weights and dropout come from
streams named after modules, so nothing but the change itself can make a difference. At their initial weights
two systems may agree although they can differ (two thresholds that are both reached by the same layer), so
there are further points to look at, see `moved_weights`.
"""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import asdict
from functools import cache
from typing import Any, cast

import psutil
import torch
from torch import Tensor, nn

from orchestrator.identity import canonical
from orchestrator.plan.drawn_once import DrawnOnce, ReusedModel
from orchestrator.plan.format import bytes_amount
from orchestrator.plan.limits import too_large
from orchestrator.plan.metrics import reported
from orchestrator.plan.moved_weights import POINTS, RANDOM, SEED, without_zeros
from orchestrator.plan.probed_model import (
    EXAMPLES,
    READ_LENGTH,
    BackwardPass,
    ForwardPass,
    ProbedModel,
    Watched,
    batch_of,
    counted,
    made_batch,
)
from orchestrator.plan.settings import System, common_factor, divided, widths
from orchestrator.plan.structure import Shapes, Structure
from trainables import catalog
from trainables.assembly import build_model, drawn_by_constructors
from trainables.settings import shallower
from trainables.threads import cpu_threads
from trainables.training.config import TrainConfig
from trainables.training.evaluate import halting
from trainables.training.rehearsal import Rehearsals
from trainables.training.step import objective
from trainables.types import TaskShape

LAYERS = 64
"""Most layers that are run, for the same reason; parameters and FLOPs are those of the whole model."""
SEVERAL_CHUNKS = (32, 256)
"""Tokens where a weight seems to be reached by no gradient: that of a memory is in the second chunk."""
NARROW = 64
"""Width near which models are run wherever it does not matter how wide they are."""
KEPT_RUNS = 2
"""Models kept in memory: an arm's, for the dimensions of its search, and that of one end of a dimension."""
KEPT_MODELS = 8
"""Models that were built and are kept to be run again."""
KEPT_GHOSTS = 16
"""Models without memory that showed a structure and are kept to be given some: a few megabytes each."""
KEPT_PARAMETERS = 10_000_000
"""Of the largest that is kept."""
COPIES = 3
"""Weights, their gradients, and what is computed on the way."""


class Probe:
    """Builds and runs systems. Each is measured once; the last ones that ran are kept as they are."""

    def __init__(self, *, faults_only: bool = False) -> None:
        """`faults_only` for whoever shows nothing but what is refused: what a proof notes, all evidence but
        the first, and what the seeds can show take long."""
        self.faults_only = faults_only
        self.rehearsals = Rehearsals()
        self._structures: dict[str, Structure] = {}
        self._shapes: dict[str, Shapes] = {}
        self._forward_passes: dict[tuple[str, str, int], ForwardPass] = {}
        self._inferences: dict[tuple[str, str], ForwardPass] = {}
        self._gradients: dict[tuple[str, str, int], BackwardPass] = {}
        self._idle: dict[tuple[str, int], frozenset[str]] = {}
        self._runs: dict[tuple[str, int], ProbedModel] = {}
        self._readings: dict[tuple[str, int, int, int, bool], tuple[float, ...]] = {}
        self._operations: dict[str, tuple[int, ...]] = {}
        self._unreached: dict[str, tuple[str, ...]] = {}
        self._narrow: dict[tuple[int, int], tuple[System, System]] = {}
        self._keys: dict[int, tuple[Mapping[str, Any], TaskShape, str]] = {}
        self._models: dict[str, ReusedModel] = {}
        self._ghosts: dict[str, nn.Module] = {}
        self._read: frozenset[str] | None = None

    def narrow(self, system: System) -> System:
        """`system` with a model that is quick to run, see `divided`: what shows there shows in `system`."""
        return self.narrow_pair(system, system)[0]

    def narrow_pair(self, one: System, other: System) -> tuple[System, System]:
        """Both with models that are quick to run, in which they differ only if they do as they are.

        All widths of both are divided by one number. Both as they are where one of them cannot be.
        """
        factor = self.factor(widths(one), widths(other))
        quick = self.divided(one, factor), self.divided(other, factor)
        return quick if quick[0] is not one and quick[1] is not other else (one, other)

    def factor(self, one: Mapping[str, int | None], other: Mapping[str, int | None]) -> int:
        """The number that all widths of two models are divided by to be quick to run."""
        return common_factor(one, other, NARROW)

    def divided(self, system: System, factor: int) -> System:
        """`system` with all widths of its model divided by `factor`; itself where that cannot be trained."""
        key = id(system), factor
        if key not in self._narrow:
            # The system is kept, so that no other gets its id.
            self._narrow[key] = system, divided(system, factor)
        return self._narrow[key][1]

    def same(self, system: System, other: System) -> bool:
        """Whether all passes of both are the same: they differ at most in how losses become weights."""
        return self._key(system) == self._key(other) and self._loss_key(system) == self._loss_key(other)

    def structure(self, system: System) -> Structure:
        """What `system` is made of and costs. Raises ValueError if it cannot be built."""
        key = self._key(system)
        if key not in self._structures:
            ghost = build_model(system.model, system.shape, SEED, torch.device("meta"))
            self._structures[key] = Structure.of(system, ghost)
            if shallower(system.model, LAYERS) == system.model:  # most are run, soon or after all other arms
                while len(self._ghosts) >= KEPT_GHOSTS:
                    del self._ghosts[next(iter(self._ghosts))]
                self._ghosts[key] = ghost
        return self._structures[key]

    def parameters(self, system: System) -> int:
        """Number of its parameters. Raises ValueError if `system` cannot be built."""
        return self.structure(system).parameters

    def shapes(self, system: System) -> Shapes:
        """Less than `structure`, in half the time. Raises ValueError if `system` cannot be built."""
        key = self._key(system)
        if (known := self._structures.get(key)) is not None:
            return Shapes(known.shapes, known.saved)
        if key not in self._shapes:
            self._shapes[key] = Shapes.of(build_model(system.model, system.shape, SEED, torch.device("meta")))
        return self._shapes[key]

    def forward(self, system: System, point: int = 0) -> ForwardPass:
        """One seeded forward pass at weights number `point`. Raises ValueError if it cannot be run here."""
        key = (self._key(system), self._loss_key(system), point)
        if key not in self._forward_passes:
            _, self._forward_passes[key] = self._run(system, point).minimised(system.train)
        return self._forward_passes[key]

    def inference(self, system: System) -> ForwardPass:
        """As `forward` at the initial weights, up to the order of sums: keeps nothing for a backward pass.

        That takes two thirds of the time. A model from outside may ask for gradients, and is run as ever.
        """
        key = (self._key(system), self._loss_key(system))
        if self._is_outside(system) or (*key, 0) in self._forward_passes or (key[0], 0) in self._runs:
            return self.forward(system)
        if key not in self._inferences:
            self._require_run(system, 0)
            model = self._model(system)  # which others train
            with torch.inference_mode():
                _, self._inferences[key] = ProbedModel.of(system, model, 0).minimised(system.train)
        return self._inferences[key]

    def gradient(self, system: System, point: int = 0) -> BackwardPass:
        """The backward pass that belongs to `forward`."""
        key = (self._key(system), self._pull_key(system, point), point)
        if key not in self._gradients:
            run = self._run(system, point)
            self._gradients[key] = run.gradient(self._loss(system, point, Watched(system.train)))
        return self._gradients[key]

    def pull_alike(self, system: System, other: System, point: int) -> bool:
        """Whether both have one gradient at weights `point`, as is seen without a backward pass.

        Their models are equal, and their losses differ at most in the weight of what has no gradient. Raises
        ValueError for what cannot be run here.
        """
        pulls = self._pull_key(system, point), self._pull_key(other, point)
        return self._key(system) == self._key(other) and pulls[0] == pulls[1]

    def metrics(self, system: System) -> tuple[str, ...]:
        """Names of all that a trial of `system` reports while searching.

        Raises ValueError for what cannot be run, here or on any machine.
        """
        if (why := too_large(system, self.parameters)) is not None:
            raise ValueError(why)
        narrow = self.narrow(system)
        output = self._run(narrow, 0).output
        if self._is_outside(system):  # whose backward pass may fail, which the proof reports
            return reported(system, batch_of(system), output)
        # The proof asks for both when this run is gone.
        self.forward(narrow)
        self.gradient(narrow)
        return reported(system, batch_of(system), output)

    def halting(self, system: System, point: int) -> dict[str, float]:
        """The quantities that only halting moves, of the two examples at weights `point`."""
        return halting(self._run(system, point).output.encoded)

    def reading(
        self,
        system: System,
        point: int,
        length: int = READ_LENGTH,
        *,
        examples: int = EXAMPLES,
        longest: int | None = None,
        dropping: bool = False,
    ) -> tuple[float, ...]:
        """What one evaluation measures at weights `point`, of inputs of at most `length` tokens.

        None has more than `longest`, or than what is trained on. `dropping` as in training. Raises ValueError
        if it cannot be run here.
        """
        inputs = examples, min(length, longest or system.shape.length_max), dropping
        key = (self._key(system), point, *inputs)
        if key not in self._readings:
            _require_memory(self.structure(system))
            batch = made_batch(system.shape, inputs[1], examples)
            self._readings[key] = ProbedModel.read(system, self._model(system), point, batch, dropping)
        return self._readings[key]

    def operations(self, system: System) -> tuple[int, ...]:
        """FLOPs that are counted while the model is evaluated, at some weights. Raises ValueError if it
        cannot be run here."""
        key = self._key(system)
        if key not in self._operations:
            _require_memory(self.structure(system))
            points = range(RANDOM + 1)
            self._operations[key] = tuple(counted(system, self._model(system), each) for each in points)
        return self._operations[key]

    def unreached(self, system: System, besides: Collection[str] = ()) -> tuple[str, ...]:
        """Parameters `besides` these that get no gradient at any of the weights tried. Raises ValueError."""
        key = canonical([self._key(system), self._loss_key(system), *besides])
        if key not in self._unreached:
            left = dict.fromkeys(name for name in self.structure(system).shapes if name not in besides)
            for gradient in self._tried_gradients(self.narrow(system)):
                for name, *sums in gradient.parts:
                    if any(sums):
                        left.pop(name, None)
                if not left:
                    break
            self._unreached[key] = tuple(left)
        return self._unreached[key]

    def borrowed(
        self, system: System, lender: System, names: Mapping[str, str], point: int
    ) -> tuple[ForwardPass, BackwardPass, tuple[float, ...]]:
        """What `system` gives, and what evaluating it measures, with the weights of `lender` at `point`.

        `names` has the name of every parameter there by the one in `system`; so has the gradient. Both must
        have equal settings of training. Raises ValueError for what cannot be run here.
        """
        weights = dict(self._run(lender, point).weights)

        def lent() -> nn.Module:
            model = self._model(system)
            for name, parameter in model.named_parameters():
                parameter.data = weights[names[name]].detach()
            return model

        run = ProbedModel.of(system, lent(), 0)
        loss, forward = run.minimised(system.train)
        gradient = run.gradient(loss)
        parts = sorted((names[name], norm, total) for name, norm, total in gradient.parts)
        return (
            forward,
            BackwardPass(gradient.norm, tuple(parts)),
            ProbedModel.read(system, lent(), 0, batch_of(system, READ_LENGTH)),
        )

    def _tried_gradients(self, system: System) -> Iterator[BackwardPass]:
        """At all weights; first where lone numbers are random, on long inputs too, which reaches the most.

        On those no weights are zero: what is before a layer of zeros learns from its second step on.
        """
        yield self.gradient(system, 0)
        yield self.gradient(system, RANDOM)
        for length in dict.fromkeys(min(each, system.shape.length_max) for each in SEVERAL_CHUNKS):
            run = ProbedModel.of(system, without_zeros(self._model(system)), RANDOM, length)
            yield run.gradient(objective(run.output, system.train))
        yield from (self.gradient(system, point) for point in range(1, POINTS) if point != RANDOM)

    def _loss(self, system: System, point: int, watched: Watched) -> Tensor:
        return objective(self._run(system, point).output, cast(TrainConfig, watched))

    def _loss_key(self, system: System, besides: Collection[str] = ()) -> str:
        """The training settings that the loss reads, which any system shows, `besides` these."""
        if self._read is None:
            watched = Watched(system.train)
            self._loss(self.narrow(system), 0, watched)
            self._read = frozenset(watched.read)
        train = system.settings["train"]
        return canonical({name: train[name] for name in sorted(self._read.difference(besides))})

    def _pull_key(self, system: System, point: int) -> str:
        """The training settings among them that the gradient at weights `point` depends on."""
        # Where nothing can halt, no cost gets a gradient at some weights that it has not at all of them.
        halts = self._is_outside(system) or not self._is_of_fixed_depth(system)
        point = point if halts else 0
        key = (self._key(system), point)
        if key not in self._idle:
            self._idle[key] = self._run(system, point).idle_weights
        return self._loss_key(system, self._idle[key])

    def _is_of_fixed_depth(self, system: System) -> bool:
        structure = self.structure(system)
        return structure.depth_min == structure.depth_max

    @staticmethod
    def _is_outside(system: System) -> bool:
        return catalog.is_outside("models", system.settings["model"]["name"])

    def _run(self, system: System, point: int) -> ProbedModel:
        key = (self._key(system), point)
        if key not in self._runs:
            while len(self._runs) >= KEPT_RUNS:
                del self._runs[next(iter(self._runs))]
            self._require_run(system, point)
            run = ProbedModel.of(system, self._model(system), point)
            if point == 0 and self._is_outside(system):
                _require_repeated(run, ProbedModel.of(system, self._model(system), point))
            self._runs[key] = run
        return self._runs[key]

    def _require_run(self, system: System, point: int) -> None:
        """Raises ValueError for what cannot be run at weights `point`."""
        _require_memory(self.structure(system))
        if point == 0:
            _require_streams(system, self.structure(system))

    def _model(self, system: System) -> nn.Module:
        """The model that is run, in training mode, with its initial weights; they are nobody else's.

        It is the same module for every run of the system, so a run that is over must not call it again.
        """
        key = self._key(system)
        if (known := self._models.get(key)) is not None:
            return known.anew()
        model = _built(system, self._ghosts.pop(key, None))
        structure = self.structure(system)
        if not structure.plain and structure.parameters <= KEPT_PARAMETERS:
            while len(self._models) >= KEPT_MODELS:
                del self._models[next(iter(self._models))]
            self._models[key] = ReusedModel.of(model)
            return self._models[key].anew()
        return model

    def _key(self, system: System) -> str:
        """Equal for systems that are built alike: of a task a model knows its shape alone."""
        model, shape = system.settings["model"], system.shape
        known = self._keys.get(id(model))
        if known is None or known[0] is not model or known[1] != shape:
            known = model, shape, canonical([model, asdict(shape)])
            self._keys[id(model)] = known  # which keeps the model, so that no other gets its id
        return known[2]


def _require_memory(structure: Structure) -> None:
    """Raises ValueError for a model that would bring this machine down when it is run once."""
    needed = COPIES * structure.parameters * torch.get_default_dtype().itemsize
    if needed > (free := psutil.virtual_memory().available):
        raise ValueError(
            f"a model must fit into memory to be tried, got {structure.parameters:,} parameters that take "
            f"{bytes_amount(needed)} where {bytes_amount(free)} are free; make it smaller or take more memory"
        )


def _require_streams(system: System, structure: Structure) -> None:
    """Raises ValueError for a model of which arms with equal seeds would not start alike."""
    if not structure.plain:
        return
    drawn = drawn_by_constructors(shallower(system.model, LAYERS), system.shape)
    if drawn:
        raise ValueError(
            f"{drawn[0]} must be drawn by a method reset_parameters of the module it belongs to, so that it "
            f"has the same random stream in every arm, got one that a constructor draws; {_move(drawn[0])}"
        )


def _move(name: str) -> str:
    """What to do about a tensor that a constructor draws."""
    if ".parametrizations." not in name:
        return "move it there"
    owner, _, rest = name.partition(".parametrizations.")
    weight = f"{owner.rpartition('.')[2]}.{rest.split('.')[0]}"
    return (
        "a parametrized weight is drawn by the module around it: in its reset_parameters, assign a tensor "
        f"that is drawn there to self.{weight}"
    )


def _require_repeated(run: ProbedModel, again: ProbedModel) -> None:
    """Raises ValueError for a model whose passes differ by themselves: they would tell any two arms apart."""
    losses = [each.output.loss.detach() for each in (run, again)]
    if not torch.equal(*map(torch.nan_to_num, losses)):
        message = " and ".join(f"{float(each.mean()):.8g}" for each in losses)
        raise ValueError(
            "a model must give the same for the same weights, inputs and seed, got losses of "
            f"{message} in two passes; let it draw from PyTorch's generators alone, or from named streams"
        )


def _built(system: System, ghost: nn.Module | None = None) -> nn.Module:
    """The model that is run, with its initial weights."""
    model = shallower(system.model, LAYERS)
    if ghost is None:
        ghost = build_model(model, system.shape, SEED, "meta")
    # Modules are made before: inside, every call of PyTorch takes longer.
    with cpu_threads(1), _drawn_once():
        return build_model(model, system.shape, SEED, "cpu", ghost)


@cache
def _drawn_once() -> DrawnOnce:
    """One for all plans of a process: it knows what was drawn, never whose it is."""
    return DrawnOnce()
