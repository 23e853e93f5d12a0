"""Count the cost of an encoder or a decoder by running it once, for models without cost formulas.

FLOPs are those of `torch.utils.flop_counter`, two for each multiply-add of a matrix product or convolution.
Bytes are those of the tensors that autograd stores for the backward pass, without weights. The model runs on
the CPU, on at most `LENGTH_MAX` tokens. The cost of longer inputs is extrapolated by a parabola through three
lengths, which is exact for sums of terms that grow with the length and with its square.
"""

import os
import warnings
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import astuple, dataclass
from functools import cache
from typing import Final

import torch
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from trainables.assembly import Part, build_part, convert_model_errors
from trainables.layers.dropout import set_dropout_context
from trainables.layers.global_generator import global_stream
from trainables.settings import ModelSettings
from trainables.streams import torch_stream
from trainables.threads import cpu_threads
from trainables.types import Encoded

LENGTH_MAX: Final = 64
MEASURED_LENGTHS: Final = (16, 32, LENGTH_MAX)
"""Lengths in tokens through which the parabola is fitted."""
WEIGHT_COPIES: Final = 3
"""Greatest number of copies of the weights in memory while a model is built, initialised and run."""
SEED: Final = 0


@dataclass(frozen=True, slots=True)
class MeasuredCost:
    """Cost of one input."""

    flops: float
    activation_bytes: float
    """Bytes stored for the backward pass, without weights."""
    computed: float
    """Number of layers run, as reported by the model."""
    bound: float
    """Greatest number of layers that the model can run."""
    halts: float
    """1 if the model can run fewer layers than `bound`, else 0."""
    positions: float
    """Number of states returned."""


@cache
def measure_cost(config: ModelSettings, part: Part, length: int, memory_length: int = 0) -> MeasuredCost:
    """Return the cost of an input of `length` tokens.

    For a decoder it is the cost of an answer of `length` tokens to `memory_length` encoder states.

    Raises:
        ValueError: The model cannot be built or run on this machine.
    """
    scale = max(length, memory_length) / LENGTH_MAX
    if scale <= 1:
        return _measure_without_extrapolation(config, part, length, memory_length)
    # Use three points between zero and the requested size; the larger of both sizes is at most LENGTH_MAX.
    shares = [size / (LENGTH_MAX * scale) for size in MEASURED_LENGTHS]
    counts = [
        _measure_without_extrapolation(
            config, part, max(1, round(length * share)), round(memory_length * share)
        )
        for share in shares
    ]
    sizes = [max(length, memory_length) * share for share in shares]
    rows = zip(*map(astuple, counts), strict=True)
    return MeasuredCost(*(max(0.0, _parabola(sizes, values, max(length, memory_length))) for values in rows))


def _parabola(points: list[float], values: tuple[float, ...], x: float) -> float:
    """Return the value at `x` of the parabola through three points (Lagrange)."""
    (a, b, c), (f, g, h) = points, values
    return (
        f * (x - b) * (x - c) / ((a - b) * (a - c))
        + g * (x - a) * (x - c) / ((b - a) * (b - c))
        + h * (x - a) * (x - b) / ((c - a) * (c - b))
    )


def _measure_without_extrapolation(
    config: ModelSettings, part: Part, length: int, memory_length: int
) -> MeasuredCost:
    """Return the cost of one input, measured by running the model on `length` tokens."""
    try:
        return _measure_rows(config, part, length, memory_length, 1)
    except ValueError:  # normalisation over a batch needs more than one row
        return _measure_rows(config, part, length, memory_length, 2)


# A caller may have disabled gradients, but counting the bytes stored for a backward pass needs a graph.
@torch.inference_mode(mode=False)
@torch.enable_grad()
def _measure_rows(
    config: ModelSettings, part: Part, length: int, memory_length: int, rows: int
) -> MeasuredCost:
    model = _small_enough_model(config, part)
    inputs = _random_rows(config.width, rows, length)
    if memory_length:
        inputs += _random_rows(config.width, rows, memory_length)
    with cpu_threads(1), convert_model_errors(config, f"run on {length} tokens"), global_stream(SEED):
        set_dropout_context(model, SEED, 0)
        with only_counted_kernels(), FlopCounterMode(display=False) as counter:
            model(*inputs)
        set_dropout_context(model, SEED, 0)
        with _record_storages(model) as storage_sizes:
            encoded = model(*inputs)
        if not isinstance(encoded, Encoded):
            raise TypeError(f"{part} must return trainables.types.Encoded, got {type(encoded).__name__}")
    computed, bound = float(encoded.computed.mean()), float(encoded.bound.mean())
    return MeasuredCost(
        flops=counter.get_total_flops() / rows,
        activation_bytes=sum(storage_sizes.values()) / rows,
        computed=computed,
        bound=bound,
        halts=float(encoded.ponder.requires_grad or computed < bound),
        positions=encoded.states.shape[1],
    )


@cache
def _small_enough_model(config: ModelSettings, part: Part) -> nn.Module:
    weight_bytes = sum(
        weight.numel() * weight.itemsize for weight in build_part(config, part, "meta").parameters()
    )
    free_bytes = os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    if WEIGHT_COPIES * weight_bytes > free_bytes:
        raise ValueError(
            f"model must fit into memory for its costs to be counted, got weights of {weight_bytes:,} bytes "
            f"where {free_bytes:,} are free; make it smaller, or state its costs in its file "
            "(see trainables/costs.py)"
        )
    return build_part(config, part, "cpu")


def _random_rows(width: int, rows: int, length: int) -> list[Tensor]:
    """Return `rows` rows of `length` random vectors, and a mask without padding."""
    x = torch.randn(rows, length, width, generator=torch_stream(SEED, "counting", length))
    return [x.requires_grad_(), torch.ones(rows, length, dtype=torch.bool)]


@contextmanager
def only_counted_kernels() -> Iterator[None]:
    """Disable the fused CPU kernels, which PyTorch's FLOP counter does not support."""
    with warnings.catch_warnings(), ExitStack() as kernels:
        warnings.simplefilter("ignore")  # the next line warns on a machine without a GPU
        kernels.enter_context(torch.backends.mkldnn.flags(enabled=False))
        kernels.enter_context(sdpa_kernel(SDPBackend.MATH))
        yield


@contextmanager
def _record_storages(model: nn.Module) -> Iterator[dict[int, int]]:
    """Yield the sizes of all storages that autograd stores in the block, without the weights of `model`."""
    weights = {parameter.untyped_storage()._cdata for parameter in model.parameters()}
    sizes: dict[int, int] = {}

    def pack(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        if storage._cdata not in weights:
            sizes[storage._cdata] = storage.nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        yield sizes
