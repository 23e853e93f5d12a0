"""Which functions are compiled, when, and for which sizes.

A region is a function of tensors alone: no halting decision is taken in it, nothing waits for the host, and
it knows no batch. So it is compiled once for all lengths and all sizes that compaction leaves. What its
annotations call by one of the names in `VARYING` is a size that varies; others are those of the weights.

One row, one column or one token are cases of their own to PyTorch's backend, each of which has a graph. Those
that a training has not met in its first `FIRST_STEPS` steps run as they are written, so that nothing is
compiled after these.

Graph breaks are errors here, and so are more graphs of one region than `MOST_GRAPHS`: nothing falls back to
running eagerly without a word.
"""

import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from contextvars import ContextVar
from functools import wraps
from types import FunctionType, NoneType, UnionType
from typing import Any, Final, ParamSpec, TypeVar, Union, get_args, get_origin, get_type_hints

import torch
from torch import Tensor, nn

VARYING: Final = frozenset("MBTKLU")
"""Packed tokens, rows, columns, keys, packed keys, units."""
MOST_GRAPHS: Final = 16
"""Of one region: for each way that a training calls it, with many rows, columns and tokens or with one."""
FIRST_STEPS: Final = 100
"""Of a training: after these, one row, column or token that is a new case is not compiled for."""
_FRAME: Final = "entire_frame_compile"
_BACKWARD: Final = "entire_backward_compile"
P = ParamSpec("P")
R = TypeVar("R")
_Marks = Mapping[Any, Any] | tuple[int, ...] | None
_Seen = tuple[int, ...]
"""Of a tensor: whether it has a gradient, and its sizes that vary, 2 for each that is larger."""
_Case = tuple[Any, ...]
"""Of a call: what is seen of its tensors, and its constants."""


class Compiler:
    """Compiles regions by a backend of PyTorch's, for as long as one model is trained."""

    def __init__(self, backend: str = "inductor") -> None:
        self.backend = backend
        self.graphs = 0
        """How many have been compiled so far, those of backward passes not counted."""
        self.seconds = 0.0
        """Time that compiling took so far."""
        self._made: dict[Callable[..., Any], Callable[..., Any]] = {}
        self._met: dict[Callable[..., Any], set[_Case]] = {}
        self._steps = 0

    def compiled(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """`function`, compiled when it is first called."""
        if function not in self._made:
            # PyTorch keeps graphs by code, and counts them: those of another training are not ours.
            own = FunctionType(
                function.__code__.replace(), function.__globals__, function.__name__, function.__defaults__
            )
            self._made[function] = torch.compile(own, fullgraph=True, backend=self._compile)
        return self._made[function]

    def takes(self, function: Callable[..., Any], case: _Case) -> bool:
        """Whether a call of `function` that is a case of its own is compiled: any, if one alike has been."""
        met = self._met.setdefault(function, set())
        if self._steps <= FIRST_STEPS:
            met.add(case)
        return case in met

    def _compile(self, graph: Any, inputs: Any) -> Any:
        from torch._dynamo.backends.registry import lookup_backend

        self.graphs += 1
        backend = inductor if self.backend == "inductor" else lookup_backend(self.backend)
        return backend(graph, inputs)

    @contextmanager
    def running(self) -> Iterator[None]:
        """Inside, regions are compiled; forward and backward pass of one step belong in it."""
        import torch._dynamo
        from torch._dynamo.utils import cumulative_time_spent_ns as spent
        from torch.fx.experimental import _config as shapes

        before = spent[_FRAME] + spent[_BACKWARD]
        token = _COMPILER.set(self)
        self._steps += 1
        with ExitStack() as settings:
            settings.enter_context(
                torch._dynamo.config.patch(
                    recompile_limit=MOST_GRAPHS,
                    fail_on_recompile_limit_hit=True,
                    specialize_float=True,
                    automatic_dynamic_shapes=False,
                    # With sizes that vary, what it keeps of operators takes longer to keep than it saves.
                    fake_tensor_cache_enabled=False,
                )
            )
            # A batch or a row of one is no case of its own, and sizes that are alike by chance are two sizes.
            settings.enter_context(shapes.patch(backed_size_oblivious=True, use_duck_shape=False))  # type: ignore[attr-defined]
            # What PyTorch's compiler does with PyTorch it is warned of.
            settings.enter_context(warnings.catch_warnings())
            warnings.filterwarnings("ignore", module=r"torch\.")
            try:
                yield
            finally:
                _COMPILER.reset(token)
                self.seconds += 1e-9 * (spent[_FRAME] + spent[_BACKWARD] - before)


_COMPILER: ContextVar[Compiler | None] = ContextVar("compiler", default=None)


def compiling() -> bool:
    """Whether regions are to be compiled."""
    return _COMPILER.get() is not None


def require_gradients(*begun: Tensor) -> None:
    """Give what a recurrence begins with a gradient, as it has after each step, though nobody asks for it.

    The first step is then to the compiler what all others are, and not compiled on its own.
    """
    for each in begun if torch.is_grad_enabled() else ():
        each.requires_grad_()


def region(function: Callable[P, R]) -> Callable[P, R]:
    """A function of tensors, of named tuples of them, and of constants, compiled where that is asked for."""
    marks: list[_Marks] = []

    @wraps(function)
    def run(*args: P.args, **kwargs: P.kwargs) -> R:
        if torch.compiler.is_compiling():
            return function(*args, **kwargs)
        compiler = _COMPILER.get()
        if compiler is None:
            return function(*args, **kwargs)
        if not marks:
            hints = get_type_hints(function)
            marks.extend(_marks(hint) for name, hint in hints.items() if name != "return")
        seen: list[_Seen] = []
        for value, mark in zip(args, marks, strict=False):
            _mark(value, mark, seen)
        alone = any(1 in sizes for _, *sizes in seen)
        if alone and not compiler.takes(function, (*seen, *sorted(kwargs.items()))):
            return function(*args, **kwargs)
        found: R = compiler.compiled(function)(*args, **kwargs)
        return found

    return run


def _marks(hint: Any) -> _Marks:
    """Of a tensor, which of its sizes vary; of a named tuple, the same of each of its fields."""
    if get_origin(hint) in (Union, UnionType):
        return next((_marks(part) for part in get_args(hint) if part is not NoneType), None)
    if isinstance(hint, type) and issubclass(hint, tuple) and hasattr(hint, "_fields"):
        hints = get_type_hints(hint)
        return {place: _marks(hints[name]) for place, name in enumerate(hint._fields)}
    if get_origin(hint) is tuple:
        return {place: _marks(part) for place, part in enumerate(get_args(hint))}
    shape = getattr(hint, "dim_str", None)
    if shape is None:
        return None
    return tuple(place for place, name in enumerate(shape.split()) if name in VARYING)


def _mark(value: Any, mark: _Marks, seen: list[_Seen]) -> None:
    """Say of tensors which of their sizes vary, and add what is seen of each to `seen`."""
    if not mark:
        return
    if value is None:
        seen.append((0,))
    elif isinstance(mark, Mapping):
        for place, inner in mark.items():
            _mark(value[place], inner, seen)
    elif isinstance(value, Tensor) and not isinstance(value, nn.Parameter):
        for axis in mark:
            torch._dynamo.maybe_mark_dynamic(value, axis)
        seen.append((value.requires_grad, *(min(value.shape[axis], 2) for axis in mark)))


def inductor(graph: Any, inputs: Any) -> Any:
    """PyTorch's own backend, inductor, without the sizes that it fixes in backward passes (`generated`)."""
    from torch._inductor.compile_fx import compile_fx

    return compile_fx(graph, inputs, inner_compile=generated)


def generated(graph: Any, inputs: Any, **options: Any) -> Any:
    """Code for a graph of operators, of a forward or a backward pass.

    Strides of what a forward pass keeps are passed to its backward pass as the numbers they have in the first
    batch (`set_tracing_context_output_strides` in torch/_inductor/utils.py of PyTorch 2.13). Where sizes of
    one are no case of their own, `_aot_stage2b_bw_compile` in torch/_functorch/_aot_autograd/graph_compile.py
    finds a stride that varies different from each number, and puts the number in its place; the first view of
    that tensor makes the size a number too, and every other length is compiled anew. Here strides are
    expressions of sizes.
    """
    from torch._guards import TracingContext
    from torch._inductor import config
    from torch._inductor.compile_fx import compile_fx_inner
    from torch._inductor.output_code import CompiledFxGraph

    # Parts that are put together are written by the kernel that makes them, or reads them, and not copied.
    with config.patch(force_pointwise_cat=True):
        made = compile_fx_inner(graph, inputs, **options)
    context: Any = TracingContext.try_get()
    if context is not None and context.output_strides and isinstance(made, CompiledFxGraph):
        read, found = context.fake_mode.shape_env.deserialize_symexpr, made.output_strides or []
        context.output_strides[:] = [None if each is None else tuple(map(read, each)) for each in found]
    return made
