"""A compiled training step launches no more kernels than it did. No code is generated for them here."""

import pytest
import torch

from tests.benchmarks import kernels
from tests.trainables.test_kernels import CASES, SLACK, batch

BOUNDS = {
    ("tlb", "-"): 392,
    ("gut", "compact"): 502,
    ("ndr", "-"): 637,
}
"""System and early exit to the most kernels, those of graphs and those around them; they only go down.

Layers of a Transformer are those of TLB.
"""

pytestmark = [
    pytest.mark.slow,
    # PyTorch's own, of what it imports to plan kernels.
    pytest.mark.filterwarnings("ignore:`torch.jit:DeprecationWarning"),
]


@pytest.mark.parametrize("case", BOUNDS, ids="-".join)
def test_a_compiled_step_asks_no_more_of_the_device_than_it_did(case: tuple[str, str]) -> None:
    torch._dynamo.reset()
    model = kernels.built(CASES[case])
    found = kernels.compiled(model, CASES[case], batch(), generates=False)["compiled"]
    assert found <= BOUNDS[case]
    assert BOUNDS[case] <= SLACK * found, f"lower the bound to {found}"
