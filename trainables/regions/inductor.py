"""PyTorch's own backend, inductor, without the sizes that it fixes in backward passes.

Strides of what a forward pass keeps are told to its backward pass as the numbers they have in the first batch
(`set_tracing_context_output_strides` in torch/_inductor/utils.py of PyTorch 2.13). Where sizes of one are no
case of their own, `_aot_stage2b_bw_compile` in torch/_functorch/_aot_autograd/graph_compile.py finds a stride
that varies different from each number, and puts the number in its place; the first view of that tensor makes
the size a number too, and every other length is compiled anew. Here strides are told as expressions of sizes.
"""

from typing import Any


def inductor(graph: Any, inputs: Any) -> Any:
    """A backend for `torch.compile`."""
    from torch._inductor.compile_fx import compile_fx

    return compile_fx(graph, inputs, inner_compile=generated)


def generated(graph: Any, inputs: Any, **options: Any) -> Any:
    """Code for a graph of operators, of a forward or a backward pass."""
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
