"""Share the batches of one trial among several processes on one machine.

Rank 0 is the trial's own process: only rank 0 updates weights, measures, reports and saves. It starts the
other ranks, which have no persistent state. For each step they receive its number and the weights, compute
the gradient of their share of the batch, and return it for summation. Restoring a trial therefore needs no
transfer to them. PyTorch's DistributedDataParallel is not used for two reasons. Its means weight all
processes equally, but shares of a batch may differ by a sample. Experts that no token of a share chose have
no gradient.

A rank ends when its standard input does, and thus when the trial that started it ends for any reason.
"""

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from datetime import timedelta
from pathlib import Path
from typing import IO, Any, Final

import torch
import torch.distributed as dist
from torch import Tensor, nn

from trainables.protocol import Job

STEP_TIMEOUT: Final = timedelta(minutes=10)
"""Time limit for one rank waiting for another within a step."""
END_TIMEOUT_S: Final = 10.0
"""Seconds after which a rank that has not ended is killed."""
MAX_OUTPUT_CHARS: Final = 2_000
"""Number of characters of a rank's output in an error message."""


class RankFailed(RuntimeError):
    """A process that shared the batches of the trial has ended early."""


class RankExchange:
    """Transfers weights from rank 0 to all ranks, and sums of gradients and other numbers to rank 0."""

    def __init__(self, model: nn.Module) -> None:
        self._parameters = list(model.parameters())

    def broadcast_weights(self) -> None:
        """Send the weights of rank 0 to all ranks."""
        flat = torch.cat([weight.detach().flatten() for weight in self._parameters])
        dist.broadcast(flat, src=0)
        if dist.get_rank():
            _copy_parts(flat, [weight.detach() for weight in self._parameters])

    def sum_on_rank0(self, numbers: Tensor) -> Tensor:
        """Sum gradients and `numbers` on rank 0. A gradient stays None if no rank has one."""
        counts = torch.tensor([weight.grad is not None for weight in self._parameters], device=numbers.device)
        counts = counts.to(torch.int64)
        dist.all_reduce(counts)
        used_weights = [
            weight for weight, ranks in zip(self._parameters, counts.tolist(), strict=True) if ranks
        ]
        for weight in used_weights:
            weight.grad = torch.zeros_like(weight) if weight.grad is None else weight.grad
        gradients = [weight.grad for weight in used_weights if weight.grad is not None]
        flat = torch.cat([weight.flatten() for weight in gradients])
        dist.reduce(flat, dst=0)
        dist.reduce(numbers, dst=0)
        _copy_parts(flat, gradients)
        return numbers


def _copy_parts(flat: Tensor, tensors: Sequence[Tensor]) -> None:
    """Copy consecutive parts of the vector `flat` into `tensors`."""
    for tensor, part in zip(tensors, torch.split(flat, [tensor.numel() for tensor in tensors]), strict=True):
        tensor.copy_(part.view_as(tensor))


class Ranks:
    """Manages the other ranks of a trial in rank 0."""

    def __init__(self, job: Job, model: nn.Module, count: int) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="haltsweep-ranks-", ignore_cleanup_errors=True)
        self._processes: list[subprocess.Popen[str]] = []
        self._logs: list[IO[str]] = []
        self._count = count
        try:
            store = Path(self._folder.name) / "store"
            for rank in range(1, count):
                self._start(rank, job, store)
            self._wait_until_ready()
            join(0, count, store, next(model.parameters()).device)
        except BaseException:
            self.close()
            raise
        self._exchange = RankExchange(model)

    def _start(self, rank: int, job: Job, store: Path) -> None:
        log = (Path(self._folder.name) / f"rank-{rank}.log").open("w+")
        self._logs.append(log)
        command = [sys.executable, "-m", "trainables.training.rank"]
        paths = os.pathsep.join(path for path in sys.path if path)
        process = subprocess.Popen(  # noqa: S603  # nosec B603
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
            env={**os.environ, "PYTHONPATH": paths},
        )
        self._processes.append(process)
        self._send(
            process,
            {
                "rank": rank,
                "count": self._count,
                "store": str(store),
                "settings": job.settings,
                "seed": job.seed,
                "data_dir": str(job.data_dir),
            },
        )

    def _wait_until_ready(self) -> None:
        """Wait until all ranks are ready. Raises RankFailed if a rank ends instead."""
        for process in self._processes:
            assert process.stdout is not None
            if not process.stdout.readline():
                raise self._failure(RuntimeError(f"process {process.pid} is not ready"))

    def _send(self, process: "subprocess.Popen[str]", message: Mapping[str, Any]) -> None:
        assert process.stdin is not None
        try:
            process.stdin.write(json.dumps(message, default=dict) + "\n")
            process.stdin.flush()
        except OSError as error:
            raise self._failure(error) from error

    def begin(self, step: int) -> None:
        """Start all ranks on their shares of the batch of `step`. Raises RankFailed."""
        for process in self._processes:
            self._send(process, {"step": step})
        try:
            self._exchange.broadcast_weights()
        except RuntimeError as error:
            raise self._failure(error) from error

    def sum_on_rank0(self, numbers: Tensor) -> Tensor:
        """Return the sums of `RankExchange.sum_on_rank0`. Raises RankFailed if a rank has ended."""
        try:
            return self._exchange.sum_on_rank0(numbers)
        except RuntimeError as error:
            raise self._failure(error) from error

    def _failure(self, error: Exception) -> Exception:
        """Return the error to raise for `error`: RankFailed if a rank has ended, else `error` itself."""
        for rank, (process, log) in enumerate(zip(self._processes, self._logs, strict=True), 1):
            try:
                code = process.wait(END_TIMEOUT_S)
            except subprocess.TimeoutExpired:
                continue
            log.seek(0)
            message = log.read()[-MAX_OUTPUT_CHARS:].strip()
            details = f" and printed: {message}" if message else ""
            return RankFailed(
                f"all {self._count} processes of a trial must run until its end, but rank {rank} ended "
                f"with code {code}{details}; start the trial again"
            )
        return error

    def close(self) -> None:
        """End all other ranks."""
        if dist.is_initialized():
            dist.destroy_process_group()
        for process in self._processes:
            if process.stdin is not None:
                try:
                    process.stdin.close()
                except OSError:
                    process.kill()
        for process in self._processes:
            try:
                process.wait(END_TIMEOUT_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
            if process.stdout is not None:
                process.stdout.close()
        for log in self._logs:
            log.close()
        self._processes, self._logs = [], []
        self._folder.cleanup()


def join(rank: int, count: int, store: Path, device: torch.device) -> None:
    """Join this process as number `rank` to the process group that uses the file `store`.

    Raises:
        ValueError: There are fewer GPUs than ranks.
    """
    cuda = device.type == "cuda"
    if cuda and torch.cuda.device_count() < count:
        raise ValueError(
            f"each of {count} ranks must have a separate GPU, got {torch.cuda.device_count()} visible to "
            "this process: request as many with resources.gpus"
        )
    previous_interface = os.environ.get("GLOO_SOCKET_IFNAME")
    os.environ["GLOO_SOCKET_IFNAME"] = previous_interface or "lo"  # all ranks are on this machine
    try:
        dist.init_process_group(
            "nccl" if cuda else "gloo",
            init_method=store.as_uri(),
            rank=rank,
            world_size=count,
            timeout=STEP_TIMEOUT,
        )
    finally:
        if previous_interface is None:
            del os.environ["GLOO_SOCKET_IFNAME"]
