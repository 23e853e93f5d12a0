"""Define the optimisers that `train.optimizer` can select.

Ranger is RAdam with Lookahead: every `LOOKAHEAD_STEPS` steps the weights return to their values after the
previous such step, moved `LOOKAHEAD_SHARE` of the way to the present ones. Sources: Liu et al., On the
Variance of the Adaptive Learning Rate and Beyond; Zhang et al., Lookahead Optimizer. The constants and the
decoupled weight decay are from the released code of Ray Chowdhury and Caragea, Modeling Hierarchical
Structures with Continuous Recursive Neural Networks.
"""

from collections.abc import Callable, Iterable
from inspect import unwrap
from typing import Any

import torch
from torch import Tensor, nn

from trainables.training.config import TrainConfig
from trainables.training.schedule import learning_rate

LOOKAHEAD_STEPS = 5
LOOKAHEAD_SHARE = 0.8
SLOW = "slow"
"""Key of Lookahead's slow weights in the optimiser state."""
_RADAM_STEP = unwrap(torch.optim.RAdam.step)


class _Uncompiled(torch.optim.Optimizer):
    """PyTorch's optimiser without compiler decorators, which import the compiler: two seconds per process.

    Nothing here is compiled, and the undecorated methods are otherwise identical.
    """

    add_param_group = unwrap(torch.optim.Optimizer.add_param_group)
    zero_grad = unwrap(torch.optim.Optimizer.zero_grad)


class AdamW(_Uncompiled, torch.optim.AdamW):
    """AdamW of PyTorch, identical in every step."""

    step = torch.no_grad()(unwrap(torch.optim.AdamW.step))


class Ranger(_Uncompiled, torch.optim.RAdam):
    """RAdam with decoupled weight decay and Lookahead; its state is one tensor per slot and parameter."""

    def __init__(self, parameters: Iterable[nn.Parameter], **keywords: Any) -> None:
        super().__init__(parameters, decoupled_weight_decay=True, **keywords)

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> float | None:  # type: ignore[override]
        """Take a step of RAdam; every `LOOKAHEAD_STEPS` steps also a step of Lookahead's slow weights."""
        # RAdam treats a parameter with any state as initialised, so add slow weights after its first step.
        initial_weights = {
            weight: weight.clone() for weight in self._weights_with_gradient() if not self.state[weight]
        }
        loss: float | None = _RADAM_STEP(self, closure)
        for parameter in self._weights_with_gradient():
            state = self.state[parameter]
            slow: Tensor = state.setdefault(SLOW, initial_weights.get(parameter))
            if int(state["step"]) % LOOKAHEAD_STEPS == 0:
                parameter.copy_(slow.lerp_(parameter, LOOKAHEAD_SHARE))
        return loss

    def _weights_with_gradient(self) -> list[nn.Parameter]:
        return [
            weight for group in self.param_groups for weight in group["params"] if weight.grad is not None
        ]


def make_optimizer(model: nn.Module, config: TrainConfig) -> torch.optim.Optimizer:
    """Return the optimiser of `config` over every parameter of `model`."""
    keywords: dict[str, Any] = {
        "lr": learning_rate(config, 0),
        "betas": config.betas,
        "eps": config.eps,
        "weight_decay": config.weight_decay,
    }
    if config.optimizer == "ranger":
        return Ranger(model.parameters(), **keywords)
    return AdamW(model.parameters(), fused=True, **keywords)
