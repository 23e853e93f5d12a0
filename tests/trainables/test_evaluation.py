"""Results of a user's `evaluate(settings, folder)` are checked like reports."""

from typing import Any

import pytest

from trainables.custom.function import Evaluation
from trainables.protocol import Job


def evaluation(tmp_path: Any, returned: Any) -> Evaluation:
    return Evaluation(lambda settings, folder: returned, Job({}, 0, "posthoc", source=tmp_path))


def test_evaluation_without_a_metric_is_refused(tmp_path: Any) -> None:
    with pytest.raises(ValueError, match="metric"):
        evaluation(tmp_path, {}).advance()


def test_evaluation_leaves_the_checkpoint_unchanged(tmp_path: Any) -> None:
    (tmp_path / "weights").write_text("3")
    folders = []

    def evaluate(settings: Any, folder: Any) -> dict[str, float]:
        folders.append(folder)
        weights = float((folder / "weights").read_text())
        (folder / "weights").unlink()
        (folder / "predictions").write_text("written by the evaluation")
        return {"test/x": weights}

    for _ in range(2):
        workload = Evaluation(evaluate, Job({}, 0, "posthoc", source=tmp_path))
        assert workload.advance().metrics == {"test/x": 3.0}
        workload.close()
    assert [path.name for path in tmp_path.iterdir()] == ["weights"]
    assert not any(folder_.exists() for folder_ in folders)
