"""x + one * other: the gradients of PyTorch's own kernel, to the bit, by fewer kernels."""

import pytest
import torch
from torch import Tensor

from tests.support.kernel_count import counted
from trainables.layers.linear import addcmul

SHAPES = {
    "alike": ((4, 3), (4, 3), (4, 3)),
    "columns": ((4, 3), (4, 1), (4, 3)),
    "rows": ((3,), (4, 3), (1, 3)),
}


def given(shapes: tuple[tuple[int, ...], ...], dtypes: tuple[torch.dtype, ...]) -> list[Tensor]:
    stream = torch.Generator().manual_seed(0)
    made = [torch.randn(shape, generator=stream) for shape in shapes]
    return [each.to(dtype).requires_grad_() for each, dtype in zip(made, dtypes, strict=True)]


@pytest.mark.parametrize("shapes", SHAPES.values(), ids=SHAPES)
@pytest.mark.parametrize("casts", [False, True])
def test_gradients_are_those_of_pytorch(shapes: tuple[tuple[int, ...], ...], *, casts: bool) -> None:
    inner = torch.bfloat16 if casts else torch.float32
    inputs = given(shapes, (torch.float32, inner, torch.float32))
    with torch.autocast("cpu", torch.bfloat16, enabled=casts):
        ours, theirs = addcmul(*inputs), torch.addcmul(*inputs)
    assert torch.equal(ours, theirs)
    found, expected = (torch.autograd.grad(each.square().sum(), inputs) for each in (ours, theirs))
    for one, other, each in zip(found, expected, inputs, strict=True):
        assert one.dtype == each.dtype
        assert torch.equal(one, other)


@pytest.mark.parametrize(("wanted", "kernels"), [((True, True, True), 2), ((True, False, False), 0)])
def test_a_gradient_takes_one_product(wanted: tuple[bool, ...], kernels: int) -> None:
    inputs = [
        each.detach().requires_grad_(asked)
        for each, asked in zip(given(SHAPES["alike"], (torch.float32,) * 3), wanted, strict=True)
    ]
    made, grad = addcmul(*inputs), torch.ones(4, 3)
    asked = [each for each in inputs if each.requires_grad]
    assert counted(lambda: torch.autograd.grad(made, asked, grad)).kernels == kernels
