"""The trial of the running process, and a stand-in for debugging training code without a sweep."""

import tempfile
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from trainables.custom.function import FunctionTrial, running_trial
from trainables.custom.generator_state import seed_generators
from trainables.protocol import Job, repeated_step_message


class Trial(FunctionTrial):
    """A stand-in for the `trial` of a training function: `train(settings, Trial(seed=1))`.

    It seeds the global generators of Python, NumPy and PyTorch as a sweep does, and collects the reports.
    """

    def __init__(
        self,
        seed: int | None = 0,
        *,
        splits: Sequence[str] = (),
        data: Path | str = "data",
        folder: Path | str | None = None,
    ) -> None:
        """Create a trial and seed the global generators.

        Args:
            seed: Seed of all random numbers of the trial; None leaves the generators as they are.
            splits: Test splits to measure; if there are any, `phase` is `confirm`, else `search`.
            data: Folder for datasets.
            folder: Folder for files of the trial; by default a new temporary folder.
        """
        self.reports: list[dict[str, Any]] = []
        """One row per report: `step` and the metrics."""
        trial_folder = Path(tempfile.mkdtemp(prefix="trial-")) if folder is None else Path(folder)
        job = Job({}, seed or 0, "confirm" if splits else "search", tuple(splits), Path(data))
        super().__init__(job, trial_folder, self._collect)
        if seed is not None:
            seed_generators(seed)

    def _collect(self, step: int, metrics: Mapping[str, float]) -> None:
        if self.reports and step <= self.reports[-1]["step"]:
            raise ValueError(repeated_step_message(step, self.reports[-1]["step"]))
        self.reports.append({"step": step, **metrics})


def current_trial() -> FunctionTrial:
    """Return the trial that this process runs, or a stand-in outside of a sweep.

    The stand-in is a `Trial` that seeds no generators, since the script has its own seed. Every call returns
    the same object.
    """
    return running_trial() or _stand_in_trial()


@cache
def _stand_in_trial() -> Trial:
    return Trial(seed=None)
