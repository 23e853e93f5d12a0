"""Norms of several models at once are those of each, with the gradients of all their uses."""

import pytest
import torch
from torch import Tensor
from torch.func import functional_call, vmap

from trainables.layers.linear import LayerNorm
from trainables.layers.stacked import Stack, by_token, stacking
from trainables.layers.stacked_norms import StackedNorms

MEMBERS, ROWS, WIDTH = 3, 5, 8


class TwoNorms(torch.nn.Module):
    """Of which the second is never used."""

    def __init__(self) -> None:
        super().__init__()
        self.used, self.other = LayerNorm(WIDTH), LayerNorm(WIDTH)

    def forward(self, x: Tensor, uses: int) -> Tensor:
        for _ in range(uses):
            x = x + self.used(x).tanh()
        return x


def weights() -> dict[str, Tensor]:
    """Of all members, each with its own, as views of one matrix as in a stack."""
    whole = torch.randn(MEMBERS, 4 * WIDTH, generator=torch.Generator().manual_seed(1))
    names = "used.weight", "used.bias", "other.weight", "other.bias"
    return {name: part.requires_grad_() for name, part in zip(names, whole.split(WIDTH, 1), strict=True)}


@pytest.mark.parametrize("together", [False, True], ids=["member by member", "token by token"])
@pytest.mark.parametrize("uses", [1, 3])
def test_each_member_has_its_own_norm_and_its_gradients(uses: int, together: bool) -> None:
    model, own = TwoNorms(), weights()
    x = torch.randn(MEMBERS, ROWS, WIDTH, generator=torch.Generator().manual_seed(2), requires_grad=True)
    norms = StackedNorms(model, own)

    def run(member: Tensor, x: Tensor) -> Tensor:
        with stacking(Stack(MEMBERS, member, norm=norms)):
            return model(by_token(x) if together else x, uses)

    found = vmap(run)(torch.arange(MEMBERS), x)
    given = [x, *own.values()]
    toward = torch.arange(found.numel(), dtype=found.dtype).view_as(found).cos()
    gradients = torch.autograd.grad(found, given, toward, allow_unused=True)
    members = [{name: each[member] for name, each in own.items()} for member in range(MEMBERS)]
    alone = torch.stack(
        [functional_call(model, each, (one, uses)) for each, one in zip(members, x, strict=True)]
    )
    expected = torch.autograd.grad(alone, given, toward, allow_unused=True)
    torch.testing.assert_close(found, alone)
    assert [each is None for each in gradients] == [False, False, False, True, True]
    for ours, theirs in zip(gradients[:3], expected[:3], strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-5)
