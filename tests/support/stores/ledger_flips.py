"""Ledgers with a bit turned over: what each reader and writer makes of them.

python -m tests.support.stores.ledger_flips [--seeds 200] [--first 0]
"""

import argparse
import random
import shutil
import tempfile
from collections import Counter
from pathlib import Path

from orchestrator.errors import StoreError
from orchestrator.ledger import events as log
from orchestrator.ledger.fold import records
from orchestrator.ledger.lease import Lease
from orchestrator.ledger.store import Ledger
from tests.support.specs.plans import make_plan
from tests.support.sweeps.histories import DEAD, history

PLAN = make_plan(3, trials_per_arm=6)
LATER = log.started(1.0, "later", 1)


def make(file: Path) -> Lease:
    """A ledger of a whole sweep, closed, still held."""
    with Ledger.open(f"sqlite:///{file}", PLAN.name, create=True) as ledger:
        lease = ledger.claim(DEAD)
        for event in history(PLAN, seed=1):
            ledger.append([event], lease)
    return lease


def content(file: Path) -> object:
    """Everything that can be asked of a ledger."""
    with Ledger.open(f"sqlite:///{file}", PLAN.name) as ledger:
        events = list(ledger.events())
        return ledger.uid, ledger.last_seq(), ledger.lease(), events, records(events, PLAN)


def flip(source: Path, target: Path, seed: int) -> str:
    """A copy with one bit turned over; where."""
    shutil.copy(source, target)
    stream = random.Random(seed)
    size = target.stat().st_size
    # Every other one in the first pages: they say what the rest is.
    position, bit = (
        stream.randrange(size) if seed % 2 else stream.randrange(min(size, 8192)),
        stream.randrange(8),
    )
    data = bytearray(target.read_bytes())
    data[position] ^= 1 << bit
    target.write_bytes(data)
    return f"byte {position}, bit {bit}"


def judge(file: Path, sound: object, lease: Lease) -> str:
    """What a flip came to: `harmless` or `refused`; anything else is a fault of ours."""
    try:
        read = content(file)
    except StoreError as error:
        reading = _refused(error)
    else:
        reading = "harmless" if read == sound else f"silently other content: {read} instead of {sound}"
    try:
        with Ledger.open(f"sqlite:///{file}", PLAN.name, create=True) as ledger:
            before = list(ledger.events())
            ledger.append([LATER], lease)
            after = [(each.kind, each.trial_id, each.payload) for each in ledger.events()]
        writing = "harmless" if after[:-1] == [(e.kind, e.trial_id, e.payload) for e in before] else "other"
        assert writing == "harmless", f"written otherwise: {after}"
        assert reading == "harmless", f"refused when read, and yet written to: {reading}"
    except StoreError as error:
        _refused(error)
    return reading


def _refused(error: StoreError) -> str:
    return "refused" if ";" in str(error) else f"silently without a remedy: {error}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=200)
    parser.add_argument("--first", type=int, default=0)
    args = parser.parse_args()
    counts: Counter[str] = Counter()
    with tempfile.TemporaryDirectory() as folder:
        sound = Path(folder) / "sound.db"
        lease = make(sound)
        expected = content(sound)
        for seed in range(args.first, args.first + args.seeds):
            file = Path(folder) / f"{seed}.db"
            where = flip(sound, file, seed)
            try:
                shown = judge(file, expected, lease)
            except Exception as error:
                shown = "fault"
                print(seed, where, f"{type(error).__name__}: {str(error)[:600]}")
            if shown.startswith("silently"):
                print(seed, where, shown[:500])
                shown = "fault"
            counts[shown] += 1
            file.unlink()
    print(dict(counts))


if __name__ == "__main__":
    main()
