"""Flip bits of ledgers, and check that readers and writers refuse them or are unaffected.

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
LATER_EVENT = log.start_event(1.0, "later", 1)


def create_ledger(file: Path) -> Lease:
    """Create the ledger of a whole sweep, closed but still leased."""
    with Ledger.open(f"sqlite:///{file}", PLAN.name, create=True) as ledger:
        lease = ledger.claim(DEAD)
        for event in history(PLAN, seed=1):
            ledger.append([event], lease)
    return lease


def content(file: Path) -> object:
    """Return everything that can be read from a ledger."""
    with Ledger.open(f"sqlite:///{file}", PLAN.name) as ledger:
        events = list(ledger.events())
        return ledger.uid, ledger.last_seq(), ledger.lease(), events, records(events, PLAN)


def flip(source: Path, target: Path, seed: int) -> str:
    """Copy a file with one flipped bit, and return the position of the bit."""
    shutil.copy(source, target)
    stream = random.Random(seed)
    size = target.stat().st_size
    # Half of the flips hit the first pages, which describe the others.
    position, bit = (
        stream.randrange(size) if seed % 2 else stream.randrange(min(size, 8192)),
        stream.randrange(8),
    )
    data = bytearray(target.read_bytes())
    data[position] ^= 1 << bit
    target.write_bytes(data)
    return f"byte {position}, bit {bit}"


def classify_flip(file: Path, expected: object, lease: Lease) -> str:
    """Return `harmless` or `refused`; every other result is a fault of the ledger."""
    try:
        flipped = content(file)
    except StoreError as error:
        read_result = _refusal(error)
    else:
        read_result = (
            "harmless" if flipped == expected else f"silently other content: {flipped} instead of {expected}"
        )
    try:
        with Ledger.open(f"sqlite:///{file}", PLAN.name, create=True) as ledger:
            events_before = list(ledger.events())
            ledger.append([LATER_EVENT], lease)
            events_after = [(event.kind, event.trial_id, event.payload) for event in ledger.events()]
        write_result = (
            "harmless"
            if events_after[:-1] == [(e.kind, e.trial_id, e.payload) for e in events_before]
            else "other"
        )
        assert write_result == "harmless", f"the append changed other events: {events_after}"
        assert read_result == "harmless", f"a ledger that refuses reads must refuse writes: {read_result}"
    except StoreError as error:
        _refusal(error)
    return read_result


def _refusal(error: StoreError) -> str:
    return "refused" if ";" in str(error) else f"silently without a remedy: {error}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=200)
    parser.add_argument("--first", type=int, default=0)
    args = parser.parse_args()
    counts: Counter[str] = Counter()
    with tempfile.TemporaryDirectory() as folder:
        sound_file = Path(folder) / "sound.db"
        lease = create_ledger(sound_file)
        expected = content(sound_file)
        for seed in range(args.first, args.first + args.seeds):
            file = Path(folder) / f"{seed}.db"
            position = flip(sound_file, file, seed)
            try:
                result = classify_flip(file, expected, lease)
            except Exception as error:
                result = "fault"
                print(seed, position, f"{type(error).__name__}: {str(error)[:600]}")
            if result.startswith("silently"):
                print(seed, position, result[:500])
                result = "fault"
            counts[result] += 1
            file.unlink()
    print(dict(counts))


if __name__ == "__main__":
    main()
