"""What `evaluate(settings, folder)` beside own training code returns is checked like any other report."""

from typing import Any

import pytest

from trainables.custom.function import Evaluation
from trainables.protocol import Job


def evaluation(tmp_path: Any, returned: Any) -> Evaluation:
    return Evaluation(lambda settings, folder: returned, Job({}, 0, "posthoc", source=tmp_path))


def test_a_reading_that_no_report_could_show_is_refused(tmp_path: Any) -> None:
    with pytest.raises(ValueError, match="must return at least one metric, got none"):
        evaluation(tmp_path, {}).advance()


def test_a_reading_leaves_the_checkpoint_as_it_is(tmp_path: Any) -> None:
    (tmp_path / "weights").write_text("3")
    read = []

    def evaluate(settings: Any, folder: Any) -> dict[str, float]:
        read.append(folder)
        weights = float((folder / "weights").read_text())
        (folder / "weights").unlink()
        (folder / "predictions").write_text("made while it is read")
        return {"test/x": weights}

    for _ in range(2):
        reading = Evaluation(evaluate, Job({}, 0, "posthoc", source=tmp_path))
        assert reading.advance().metrics == {"test/x": 3.0}
        reading.close()
    assert [each.name for each in tmp_path.iterdir()] == ["weights"]
    assert not any(each.exists() for each in read)


def test_what_is_measured_is_handed_on(tmp_path: Any) -> None:
    reading = evaluation(tmp_path, {"test/x": 1.0})
    assert reading.advance().metrics == {"test/x": 1.0}
    assert reading.finished
