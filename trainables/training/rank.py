"""One of the processes that share the batches of a trial, not the first: see `trainables.training.ranks`.

    python -m trainables.training.rank

Standard input holds a line for what to train, then one for each step; where it ends, the process does.
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
from trainables.training.ranks import Exchange, join
from trainables.training.sources import Sources
from trainables.training.step import Learner, share_of_step


def main() -> None:
    """Work until the trial ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C ends the trial, which is saved first
    orders: SimpleQueue[dict[str, Any]] = SimpleQueue()
    threading.Thread(target=_listen, args=(orders,), daemon=True).start()
    first = orders.get()
    rank, count = first["rank"], first["count"]
    device = torch.device("cuda", rank) if torch.cuda.is_available() else torch.device("cpu")
    if device.type == "cuda":
        torch.cuda.set_device(device)
    config = train_config(first["settings"]["train"])
    sources = Sources(Job(first["settings"], first["seed"], data_dir=Path(first["data_dir"])), config, device)
    learner = Learner(sources.model(), config, seed=first["seed"])
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    sys.stdout = sys.stderr
    join(rank, count, Path(first["store"]), device)
    exchange = Exchange(learner.model)
    while True:
        step = orders.get()["step"]
        exchange.spread_weights()
        exchange.gather(share_of_step(learner, sources.train_batch(step), step, rank))


def _listen(orders: "SimpleQueue[dict[str, Any]]") -> None:
    """Hear what is to be done; end at once where nobody will say any more, whatever is under way."""
    for line in sys.stdin:
        orders.put(json.loads(line))
    os._exit(0)


if __name__ == "__main__":
    main()
