"""Run a further process that shares the batches of a trial: see `trainables.training.ranks`.

    python -m trainables.training.rank

Standard input contains one line with the trial, then one line per step. The process ends when its standard
input ends.
"""

import json
import os
import signal
import sys
import threading
from pathlib import Path
from queue import SimpleQueue
from typing import Any

import torch

from trainables.protocol import Job
from trainables.training.config import train_config
from trainables.training.ranks import RankExchange, join
from trainables.training.sources import Sources
from trainables.training.step import Learner, share_of_step


def main() -> None:
    """Work until the trial ends."""
    # Ctrl-C also reaches the trial, which saves its state and then ends this process.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    messages: SimpleQueue[dict[str, Any]] = SimpleQueue()
    threading.Thread(target=_read_messages, args=(messages,), daemon=True).start()
    first_message = messages.get()
    rank, count = first_message["rank"], first_message["count"]
    device = torch.device("cuda", rank) if torch.cuda.is_available() else torch.device("cpu")
    if device.type == "cuda":
        torch.cuda.set_device(device)
    config = train_config(first_message["settings"]["train"])
    sources = Sources(
        Job(first_message["settings"], first_message["seed"], data_dir=Path(first_message["data_dir"])),
        config,
        device,
    )
    learner = Learner(sources.model(), config, seed=first_message["seed"])
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    sys.stdout = sys.stderr
    join(rank, count, Path(first_message["store"]), device)
    exchange = RankExchange(learner.model)
    while True:
        step = messages.get()["step"]
        exchange.broadcast_weights()
        exchange.sum_on_rank0(share_of_step(learner, sources.train_batch(step), step, rank))


def _read_messages(messages: "SimpleQueue[dict[str, Any]]") -> None:
    """Put each line of standard input into `messages`; end the process at once when standard input ends."""
    for line in sys.stdin:
        messages.put(json.loads(line))
    os._exit(0)


if __name__ == "__main__":
    main()
