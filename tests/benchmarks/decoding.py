"""Answer tokens written per second: from a cache against running the decoder anew on all that is written.

    python tests/benchmarks/decoding.py [--device cuda] [--width 128] [--inputs 32] [--length 64] ...

Weights are random and the end is made improbable, so that every answer has the full length and all columns
write the same number of tokens. Columns take turns, and on a CPU the clock counts processor time, so that a
busy machine blurs the figures less.
"""

import argparse
import statistics
import time
from typing import Any

import torch

from trainables.assembly import build_model
from trainables.data.synthetic import synthetic_batch
from trainables.decoding.hypotheses import Cached, Recomputing
from trainables.decoding.search import beam_search, greedy
from trainables.types import Batch, TaskShape

SYSTEMS: dict[str, dict[str, Any]] = {
    "Transformer": {"name": "transformer", "layers": 4},
    "UT": {
        "name": "universal",
        "gate": False,
        "max_layers": 6,
        "halt": {"unit": "token", "transition": False},
    },
    "GUT": {"name": "universal", "max_layers": 6},
    "SUT": {"name": "sut"},
}
BEAMS = (1, 4)


def write(model: Any, batch: Batch, length: int, beam: int, *, cached: bool) -> list[list[int]]:
    """All answers to `batch`."""
    memory, mask = model.encode(batch.tokens, batch.mask)
    hypotheses = (
        Cached(model, memory.states, mask, beam, length)
        if cached
        else Recomputing(model, memory.states, mask, beam)
    )
    place = (len(batch.tokens), model.end_id, length, batch.tokens.device)
    if beam == 1:
        return greedy(hypotheses, *place)
    return beam_search(hypotheses, *place, beam_size=beam, length_penalty=0.4)


def seconds(model: Any, batch: Batch, length: int, beam: int, *, cached: bool) -> float:
    """Of one run."""
    on_gpu = batch.tokens.is_cuda
    clock = time.perf_counter if on_gpu else time.process_time
    begin = clock()
    found = write(model, batch, length, beam, cached=cached)
    if on_gpu:
        torch.cuda.synchronize()
    assert all(len(answer) == length - 1 for answer in found)
    return clock() - begin


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="cpu")
    for name, value in {"width": 128, "inputs": 32, "length": 64, "repeats": 3}.items():
        parser.add_argument(f"--{name}", type=int, default=value)
    given = parser.parse_args()
    torch.set_num_threads(1)
    print("| system | beam | anew, tokens/s | cached, tokens/s | times |\n|---|---|---|---|---|")
    shape = TaskShape(
        "sequence", 100, 100, pad_id=99, length_max=given.length, end_id=98, answer_length_max=given.length
    )
    batch = synthetic_batch(shape, given.inputs, given.length, seed=0).to(torch.device(given.device))
    for label, raw in SYSTEMS.items():
        model = build_model(raw | {"width": given.width}, shape, 0, given.device).eval()
        model.readout.outer.bias.data[shape.end_id] = -1e4
        for beam in BEAMS:
            taken: dict[bool, list[float]] = {True: [], False: []}
            with torch.inference_mode():
                for _ in range(given.repeats):
                    for cached, times in taken.items():
                        times.append(seconds(model, batch, given.length, beam, cached=cached))
            tokens = given.inputs * given.length
            fast, slow = (tokens / statistics.median(taken[cached]) for cached in (True, False))
            print(f"| {label} | {beam} | {slow:,.0f} | {fast:,.0f} | {fast / slow:.1f} |", flush=True)


if __name__ == "__main__":
    main()
