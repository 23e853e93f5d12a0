"""A model that is built and drawn once and run many times, each time with weights of its own.

Building and drawing a narrow model takes longer than running it, and a proof runs it at several weights. What
a run kept for its backward pass stays as it was, for the next run has other parameters; their values are
shared until somebody gives a parameter new ones.
"""

from dataclasses import dataclass

from torch import nn


@dataclass(frozen=True, slots=True)
class ReusedModel:
    """A model, where each of its weights belongs, and what it is at first."""

    model: nn.Module
    initial: tuple[tuple[dict[str, nn.Parameter | None], str, nn.Parameter], ...]

    @classmethod
    def of(cls, model: nn.Module) -> "ReusedModel":
        """Of a model with its initial weights, which must not be changed in place from now on."""
        named = (
            (module._parameters, name, own)
            for module in model.modules()
            for name, own in module.named_parameters(recurse=False)
        )
        return cls(model, tuple(named))

    def anew(self) -> nn.Module:
        """The model, in training mode, with its initial weights in new parameters."""
        for where, name, own in self.initial:
            where[name] = nn.Parameter(own.detach(), requires_grad=own.requires_grad)
        return self.model.train()
