"""What compiled regions ask of a device: kernels of their graphs, counted as these are run."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from torch._inductor import ir
from torch._inductor.compile_fx import compile_fx
from torch._inductor.scheduler import NopKernelSchedulerNode, Scheduler
from torch._inductor.utils import fresh_cache
from torch.utils._python_dispatch import _disable_current_modes

from trainables.regions.compiling import Compiler
from trainables.regions.inductor import generated


class CountingCompiler(Compiler):
    """Compiles by inductor, and counts what its graphs launch when they run.

    A kernel is what is left of operators after fusion, or a call of a library: on a CPU several share
    one function, on CUDA each is a launch.
    """

    def __init__(self) -> None:
        super().__init__()
        self.kernels = 0
        """Run so far."""

    def compiled(self, function: Callable[..., Any]) -> Callable[..., Any]:
        made = super().compiled(function)

        def run(*args: Any, **kwargs: Any) -> Any:
            # PyTorch compiles nothing while operators are counted.
            with _disable_current_modes():
                return made(*args, **kwargs)

        return run

    def _compile(self, graph: Any, inputs: Any) -> Any:
        self.graphs += 1
        return compile_fx(graph, inputs, inner_compile=self._inner)

    def _inner(self, graph: Any, inputs: Any, **options: Any) -> Callable[..., Any]:
        with _kernels_of_graphs() as found, fresh_cache():
            made = generated(graph, inputs, **options)
        count = sum(found)

        def run(*given: Any) -> Any:
            self.kernels += count
            with _disable_current_modes():
                return made(*given)

        run._boxed_call = getattr(made, "_boxed_call", False)  # type: ignore[attr-defined]
        return run


@contextmanager
def _kernels_of_graphs() -> Iterator[list[int]]:
    found: list[int] = []
    codegen = Scheduler.codegen

    def counted(scheduler: Scheduler) -> Any:
        found.append(sum(map(_is_kernel, scheduler.nodes)))
        return codegen(scheduler)

    Scheduler.codegen = counted  # type: ignore[method-assign]
    try:
        yield found
    finally:
        Scheduler.codegen = codegen  # type: ignore[method-assign]


def _is_kernel(node: Any) -> bool:
    return not isinstance(node, NopKernelSchedulerNode) and not isinstance(node.node, ir.MultiOutput)
