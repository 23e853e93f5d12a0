"""A thousand deaths: `python -m tests.faults.soak --kills 1000 --seed 0`.

Sweeps are run in several ways, and on the way launchers, workers, Ray's own processes, the background writer,
MLflow's server and PostgreSQL are killed with SIGKILL at moments drawn from the seed. After each sweep
ledger, Parquet, MLflow and disk are compared with what must be there. What was killed when stands in the log
(JSON lines); a run that was cut off goes on from there. Exits with 1 if anything was lost, doubled, left or
wrong.
"""

import argparse
import sys
import tempfile
from pathlib import Path

from tests.faults.soak.schedule import WEIGHTS
from tests.faults.soak.table import summary
from tests.faults.soak.whole import Asked, run


def main() -> int:
    """Run, print the table, tell whether all is well."""
    parser = argparse.ArgumentParser(prog="tests.faults.soak", description=__doc__)
    parser.add_argument("--kills", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", default=",".join(WEIGHTS), help="kinds, e.g. worker,launcher")
    parser.add_argument("--parallel", type=int, default=2, help="sweeps side by side")
    parser.add_argument("--rounds", type=int, nargs="*", help="these rounds alone, to see them again")
    parser.add_argument(
        "--folder", type=Path, help="for log and sweeps; what is there already is not done again"
    )
    args = parser.parse_args()
    kinds = tuple(args.only.split(","))
    if unknown := set(kinds) - WEIGHTS.keys():
        parser.error(f"--only must name some of {', '.join(WEIGHTS)}, got {', '.join(sorted(unknown))}")
    folder = args.folder or Path(tempfile.mkdtemp(prefix="soak-"))
    print(f"in {folder}", flush=True)
    asked = Asked(args.kills, args.seed, kinds, args.parallel, tuple(args.rounds or ()))
    results, lingering = run(asked, folder, lambda line: print(line, flush=True))
    table, well = summary(results, lingering)
    print(table)
    return 0 if well else 1


if __name__ == "__main__":
    sys.exit(main())
