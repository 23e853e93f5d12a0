"""Count the parameters of the parts of a model."""

from torch import nn

from trainables import costs

GROUPS = (
    *("embedding", "boundaries", "memory", "recall", "attention", "feedforward", "gate", "norm"),
    *("halt", "cell", "scorer", "start", "readout"),
)


def parameters_by_group(model: nn.Module) -> dict[str, int]:
    """Return the number of parameters in each kind of part; together they are all parameters of the model."""
    sizes = dict.fromkeys((*GROUPS, "other"), 0)
    for name, parameter in model.named_parameters():
        sizes[_group_of(name)] += parameter.numel()
    assert sum(sizes.values()) == costs.parameters(model)
    return {group: count for group, count in sizes.items() if count}


def _group_of(name: str) -> str:
    parts = name.split(".")
    if any(part.endswith("norm") for part in parts):
        return "norm"
    return next((part for part in parts if part in GROUPS), "other")
