"""One optimiser step of several learners at once: weights, moments and gradients stacked.

Each learner is a training of its own, and its step the one that `training.step` takes alone, up to rounding:
its batch, its dropout, its gradient, clipped by its own norm. What they share are kernels: the forward pass
is one under `torch.func.vmap`, and optimiser, clipping and moving average see all weights of all learners as
the rows of one matrix. Parameters and moments of each are views into it while it is there.

Legend: W learners, P numbers in all weights of one.
"""

import logging
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field
from itertools import accumulate, pairwise

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.func import functional_call, vmap
from torch.nn import functional as F
from torch.optim.swa_utils import get_ema_multi_avg_fn

from trainables.layers.dropout import set_dropout_context
from trainables.layers.stacked import Stack, stacking
from trainables.layers.stacked_norms import StackedNorms
from trainables.threads import cpu_threads
from trainables.training.config import TrainConfig
from trainables.training.optimizers import optimizer_of
from trainables.training.state import COUNT
from trainables.training.step import Learner, StepResult, objective, one_step, set_rates
from trainables.types import NOT_ASKED, Batch

LOG = logging.getLogger(__name__)
_SMALL = 1e-6
"""What PyTorch adds to a norm that it clips by."""
REMEDY = "drop it, or resources.pack"


class StackedUpdateFailed(RuntimeError):
    """The update of a stack failed half-way: some weights have taken the step and others have not."""


@dataclass
class _Group:
    """Parameters that an optimiser always steps together, of all learners."""

    names: tuple[str, ...]
    flat: nn.Parameter
    """W x P: each learner's numbers in a row."""
    average: Float[Tensor, "W P"] | None
    optimizer: torch.optim.Optimizer
    ends: list[int] = field(init=False)
    shapes: dict[str, torch.Size] = field(init=False)

    def views(self, whole: Float[Tensor, "W P"]) -> dict[str, Tensor]:
        """Of each parameter the stack of all learners."""
        parts = zip(self.names, pairwise(self.ends), strict=True)
        return {name: whole[:, first:end].view(-1, *self.shapes[name]) for name, (first, end) in parts}


class LearnerStack:
    """Learners of one kind that take their steps together. Their settings differ in nothing but the seed.

    As long as it is there, they take no step alone: `dissolve` gives each what is its own. Raises ValueError
    for learners that have not come equally far.
    """

    def __init__(self, learners: Sequence[Learner]) -> None:
        self.learners = tuple(learners)
        self._template = learners[0].model
        self._parameters = [dict(each.model.named_parameters()) for each in learners]
        self._members = torch.arange(len(learners), device=learners[0].device)
        steps = {name: self._steps_of(name) for name in self._parameters[0]}
        self._groups = [
            self._group([name for name, taken in steps.items() if taken == number])
            for number in sorted(set(steps.values()))
        ]

    def step(self, batches: Sequence[Batch], step: int) -> list[StepResult]:
        """Optimiser step number `step` of each learner on its own batch, all of as many rows.

        Raises `StackedUpdateFailed` where weights may have changed, so that the step must not be taken again;
        after any other error all learners are as before.
        """
        config, batch = self.learners[0].config, stacked_batch(batches)
        with cpu_threads(config.threads):
            parts = self._parts()
            found = self._forward(parts, batch, step)
            gradients = torch.autograd.grad(found[0].sum(), list(parts.values()), allow_unused=True)
            self._give(dict(zip(parts, gradients, strict=True)))
            norms = self._clip(config.clip)
            try:
                self._update(step)
            except Exception as error:
                raise StackedUpdateFailed(
                    f"optimiser step {step} of {len(self.learners)} packed trials failed after it had begun: "
                    f"{error!r}"
                ) from error
        loss, ponder, hits, counts = (each.unbind() for each in found[1:])
        tokens = batch.mask.flatten(1).sum(1).unbind()
        return [
            StepResult(*each) for each in zip(loss, ponder, norms.unbind(), hits, counts, tokens, strict=True)
        ]

    def settle(self, learner: Learner) -> None:
        """Let the optimiser of `learner` hold its state, as after a step alone."""
        number = self.learners.index(learner)
        for group in self._groups:
            state = group.optimizer.state.get(group.flat, {})
            moments = {slot: group.views(each) for slot, each in state.items() if slot != COUNT}
            for name in group.names:
                if not state:
                    continue
                own = {slot: views[name][number] for slot, views in moments.items()}
                learner.optimizer.state[self._parameters[number][name]] = {COUNT: state[COUNT].clone(), **own}

    def dissolve(self) -> None:
        """Give each learner weights, moments and averages in memory of its own."""
        for learner, parameters in zip(self.learners, self._parameters, strict=True):
            self.settle(learner)
            for parameter in parameters.values():
                parameter.data = parameter.data.clone()
                state = learner.optimizer.state.get(parameter, {})
                state.update({slot: each.clone() for slot, each in state.items()})
            if learner.average is not None:
                learner.average.update({name: each.clone() for name, each in learner.average.items()})

    def _steps_of(self, name: str) -> int:
        """Optimiser steps that a parameter has taken. Raises ValueError if not as many in all learners."""
        found = {
            int(learner.optimizer.state.get(own[name], {}).get(COUNT, 0))
            for learner, own in zip(self.learners, self._parameters, strict=True)
        }
        if len(found) > 1:
            raise ValueError(f"{name} must have been stepped as often in all learners, got {sorted(found)}")
        return found.pop()

    def _group(self, names: Sequence[str]) -> _Group:
        """Stack what the learners have of these parameters, and let them have views of it."""
        flat = nn.Parameter(
            self._stacked([[own[name].detach() for name in names] for own in self._parameters])
        )
        averages = [each.average for each in self.learners if each.average is not None]
        average = self._stacked([[own[name] for name in names] for own in averages]) if averages else None
        config = self.learners[0].config
        group = _Group(tuple(names), flat, average, optimizer_of([flat], config))
        first = self._parameters[0]
        group.shapes = {name: first[name].shape for name in names}
        group.ends = [0, *accumulate(first[name].numel() for name in names)]
        states = [
            [learner.optimizer.state.get(own[name], {}) for name in names]
            for learner, own in zip(self.learners, self._parameters, strict=True)
        ]
        slots = states[0][0].keys()
        if slots:
            group.optimizer.state[flat] = {
                slot: states[0][0][slot].clone()
                if slot == COUNT
                else self._stacked([[each[slot] for each in own] for own in states])
                for slot in slots
            }
        for name, whole in group.views(flat.data).items():
            for own, mine in zip(self._parameters, whole, strict=True):
                own[name].data = mine
        if average is not None:
            for name, whole in group.views(average).items():
                for own_average, mine in zip(averages, whole, strict=True):
                    own_average[name] = mine
        return group

    @staticmethod
    def _stacked(rows: Sequence[Sequence[Tensor]]) -> Float[Tensor, "W P"]:
        return torch.stack([torch.cat([each.reshape(-1) for each in row]) for row in rows])

    def _parts(self) -> dict[str, Tensor]:
        """The weights of all learners, as what gradients are taken of."""
        return {
            name: whole.requires_grad_()
            for group in self._groups
            for name, whole in group.views(group.flat.detach()).items()
        }

    def _forward(self, parts: dict[str, Tensor], batch: Batch, step: int) -> tuple[Float[Tensor, " W"], ...]:
        """The objective, mean loss, mean ponder cost, hits and predictions of each learner."""
        config, size = self.learners[0].config, len(self.learners)
        most = None if batch.steps is None else int(batch.steps.max())
        set_dropout_context(self._template, tuple(each.seed for each in self.learners), step)
        norms = StackedNorms(self._template, parts)

        def run(  # noqa: PLR0917 vmap takes no keywords
            weights: dict[str, Tensor],
            member: Int[Tensor, ""],
            tokens: Tensor,
            mask: Tensor,
            labels: Tensor,
            steps: Tensor | None,
        ) -> tuple[Tensor, ...]:
            with stacking(Stack(size, member, most, norms)):
                own = Batch(tokens, mask, labels, steps)
                output = functional_call(self._template, weights, (own,))
                total = objective(output, config)
            loss, ponder = output.loss.detach().mean(), output.encoded.ponder.detach().mean()
            return total, loss, ponder, output.hits.detach().sum(), output.counts.detach().sum()

        over = vmap(run, in_dims=(0, 0, 0, 0, 0, None if batch.steps is None else 0))
        found: tuple[Tensor, ...] = over(
            parts, self._members, batch.tokens, batch.mask, batch.labels, batch.steps
        )
        return found

    def _give(self, gradients: dict[str, Tensor | None]) -> None:
        """Put gradients on the rows; parameters that have none are left as they are, as by PyTorch."""
        for group in [*self._groups]:
            used = [name for name in group.names if gradients[name] is not None]
            if used and len(used) < len(group.names):
                self._part(group, used)
        for group in self._groups:
            own = [gradients[name] for name in group.names]
            group.flat.grad = (
                torch.cat([each.flatten(1) for each in own if each is not None], 1)
                if own[0] is not None
                else None
            )

    def _part(self, group: _Group, used: Sequence[str]) -> None:
        """Make two groups of one: parameters that have a gradient in this step, and the others."""
        for learner in self.learners:
            self.settle(learner)
        others = [name for name in group.names if name not in used]
        place = self._groups.index(group)
        self._groups[place : place + 1] = [self._group(used), self._group(others)]

    def _clip(self, most: float | None) -> Float[Tensor, " W"]:
        """Scale gradients that are longer than `most` down to it; the norms they had."""
        gradients = [group.flat.grad for group in self._groups if group.flat.grad is not None]
        norms = [torch.linalg.vector_norm(each, dim=1) for each in gradients]
        norm: Tensor = norms[0] if len(norms) == 1 else torch.linalg.vector_norm(torch.stack(norms), dim=0)
        if most is not None:
            share = (most / (norm + _SMALL)).clamp_(max=1.0)[:, None]
            for each in gradients:
                each.mul_(share)
        return norm

    def _update(self, step: int) -> None:
        config = self.learners[0].config
        for group in self._groups:
            set_rates(group.optimizer, config, step)
            group.optimizer.step()
            group.flat.grad = None
            if group.average is not None and config.ema is not None:
                move = get_ema_multi_avg_fn(config.ema)  # type: ignore[no-untyped-call]
                move([group.average], [group.flat.detach()], 0)


@dataclass(frozen=True, slots=True)
class NextStep:
    """What a learner hands in where several take their steps together."""

    learner: Learner
    batch: Batch


@dataclass
class StepsTogether:
    """Steps of learners that are in one process: stacked as far as that can be, and apart otherwise."""

    stack: LearnerStack | None = None
    apart: bool = False
    """A stacked step failed: none is tried again."""

    def __call__(self, given: Sequence[NextStep], step: int) -> list[StepResult | Exception]:
        """Step number `step` of each, or what it raised."""
        learners = tuple(each.learner for each in given)
        if len(given) > 1 and not self.apart and len(set(map(_kind, given))) == 1:
            try:
                if self.stack is None or self.stack.learners != learners:
                    self.release(*learners)
                    self.stack = LearnerStack(learners)
                return [*self.stack.step([each.batch for each in given], step)]
            except StackedUpdateFailed as error:
                # Taken alone, it would be a second one for some weights: each trial ends here instead.
                LOG.warning("%s", error)
                self.apart = True
                self.release(*learners)
                return [StackedUpdateFailed(*error.args).with_traceback(error.__traceback__) for _ in given]
            except Exception as error:
                # It is not known whose doing it is: apart, each has what is its own.
                LOG.warning("%d trials go on apart: %r", len(given), error)
                self.apart = True
        self.release(*learners)
        return [_alone(each, step) for each in given]

    def settle(self, learner: Learner) -> None:
        """As `LearnerStack.settle`, if it is in a stack."""
        if self.stack is not None and learner in self.stack.learners:
            self.stack.settle(learner)

    def release(self, *learners: Learner) -> None:
        """Give up the stack if any of `learners` is in it."""
        if self.stack is not None and any(each in self.stack.learners for each in learners):
            self.stack.dissolve()
            self.stack = None


def _kind(given: NextStep) -> tuple[int, Hashable]:
    """What steps that are stacked must have in common: rows, and which parameters have a gradient. One that
    has none is left as it is, and one of zero is not."""
    own = getattr(given.learner.model, "gradients_of", None)
    return len(given.batch.labels), own(given.batch) if callable(own) else None


def _alone(given: NextStep, step: int) -> StepResult | Exception:
    try:
        return one_step(given.learner, given.batch, step)
    except Exception as error:
        return error


def stacked_batch(batches: Sequence[Batch]) -> Batch:
    """Batches of as many rows, padded to the same width, in one with a further axis of them."""
    steps = [each.steps for each in batches if each.steps is not None]
    return Batch(
        _padded([each.tokens for each in batches], 0),
        _padded([each.mask for each in batches], value=False),
        _padded([each.labels for each in batches], NOT_ASKED),
        torch.stack(steps) if steps else None,
    )


def _padded(parts: Sequence[Tensor], value: float) -> Tensor:
    if parts[0].dim() == 1:
        return torch.stack([*parts])
    width = max(each.shape[1] for each in parts)
    wide = (
        each if each.shape[1] == width else F.pad(each, (0, width - each.shape[1]), value=value)
        for each in parts
    )
    return torch.stack([*wide])


def apart(config: TrainConfig) -> str | None:
    """Why several trainings of `config`, of a seed each, take their steps apart, as `must ..., got ...`; None
    where they need not.

    `trainables.assembly.unstacked` says the same of models.
    """
    wanted = (
        ("precision", config.precision, "fp32", "autocast casts the weights of one model at a time"),
        ("accumulate", config.accumulate, 1, "batches are run as a whole"),
        ("ranks", config.ranks, 1, "one process has all of them"),
        ("compile", config.compile, False, "layers are compiled for one model"),
        ("checkpoint_activations", config.checkpoint_activations, False, "layers are run once"),
        ("halve_after", config.halve_after, None, "all have the same learning rate"),
        ("batch_tokens", config.batch_tokens, None, "batches must have as many rows as each other"),
    )
    for name, given, needed, why in wanted:
        if given != needed:
            must = "be left out" if needed is None else f"be {needed}"
            return f"train.{name} must {must} where seeds are trained as one, got {given}: {why}; {REMEDY}"
    return None
