"""What compiled regions ask of a device: kernels of their graphs, counted as these are run."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from copy import deepcopy
from typing import Any

from torch._functorch import config as functorch
from torch._inductor import ir
from torch._inductor.compile_fx import compile_fx
from torch._inductor.scheduler import NopKernelSchedulerNode, Scheduler
from torch._inductor.utils import fresh_cache
from torch.fx import GraphModule
from torch.utils._python_dispatch import _disable_current_modes

from trainables.regions.compiling import Compiler, generated


class CountingCompiler(Compiler):
    """Compiles by inductor, and counts what its graphs launch when they run; or, with `generates` off, plans
    these kernels, but writes no code for them and runs the operators of the graph in their place.

    A kernel is what is left of operators after fusion, or a call of a library: on a CPU several share
    one function, on CUDA each is a launch.
    """

    def __init__(self, *, generates: bool = True) -> None:
        super().__init__()
        self.generates = generates
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
        # What is found among graphs that were compiled before is not compiled, so not counted.
        with functorch.patch(enable_autograd_cache=False):
            return compile_fx(graph, inputs, inner_compile=self._inner)

    def _inner(self, graph: Any, inputs: Any, **options: Any) -> Callable[..., Any]:
        operators = GraphModule(graph, deepcopy(graph.graph))
        with _kernels_of_graphs(then_stop=not self.generates) as found, fresh_cache(), suppress(_Planned):
            made = generated(graph, inputs, **options)
        if not self.generates:
            made = _boxed(operators)
        count = sum(found)

        def run(*given: Any) -> Any:
            self.kernels += count
            with _disable_current_modes():
                return made(*given)

        run._boxed_call = getattr(made, "_boxed_call", False)  # type: ignore[attr-defined]
        return run


class _Planned(BaseException):
    """Kernels are known: nothing else is wanted of the backend, which would report an error."""


def _boxed(operators: GraphModule) -> Callable[..., Any]:
    """With all inputs in one list, as the backend's code takes them."""

    def run(given: list[Any]) -> Any:
        return operators(*given)

    run._boxed_call = True  # type: ignore[attr-defined]
    return run


@contextmanager
def _kernels_of_graphs(*, then_stop: bool) -> Iterator[list[int]]:
    found: list[int] = []
    codegen = Scheduler.codegen

    def counted(scheduler: Scheduler) -> Any:
        found.append(sum(map(_is_kernel, scheduler.nodes)))
        if then_stop:
            raise _Planned
        return codegen(scheduler)

    Scheduler.codegen = counted  # type: ignore[method-assign]
    try:
        yield found
    finally:
        Scheduler.codegen = codegen  # type: ignore[method-assign]


def _is_kernel(node: Any) -> bool:
    return not isinstance(node, NopKernelSchedulerNode) and not isinstance(node.node, ir.MultiOutput)
