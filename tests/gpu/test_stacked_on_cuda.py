"""On CUDA a step of several learners at once gives each what it gives it alone."""

from tests.gpu.devices import on_devices
from tests.trainables.training.stacks import check_stack, stackable
from tests.trainables.training.steps import SHAPES, small

CASES = {f"{name}, {head}": (name, head) for name, head in stackable()}


@on_devices(CASES)
def test_a_step_together_is_the_step_of_each(case: tuple[str, str], device: str) -> None:
    name, head = case
    check_stack(small(name, SHAPES[head]), SHAPES[head], device)
