"""The running time of an arm's trials excludes the time between launches."""

from orchestrator.tracking.mlflow.running_time import RunningTime


def reported_seconds(time: RunningTime) -> list[float]:
    return [point.value for point in time.points(0)]


def start(time: RunningTime, trial_id: str, at_ms: int) -> None:
    time.observe(at_ms)
    time.running.add(trial_id)


def end(time: RunningTime, trial_id: str, at_ms: int) -> None:
    time.observe(at_ms)
    time.running.discard(trial_id)


def test_parallel_trials_count_once() -> None:
    time = RunningTime()
    start(time, "a", 1_000)
    start(time, "b", 2_000)
    end(time, "a", 4_000)
    end(time, "b", 7_000)
    start(time, "c", 100_000)
    end(time, "c", 101_500)
    assert reported_seconds(time) == [7.5]
    assert reported_seconds(time) == [], "each duration must be reported once"


def test_lost_trial_counts_until_its_last_event() -> None:
    time = RunningTime()
    start(time, "a", 1_000)
    time.observe(3_000)
    time.running.clear()
    end(time, "a", 900_000)
    assert reported_seconds(time) == [2.0]
    start(time, "a", 1_000_000)
    end(time, "a", 1_001_000)
    assert [(point.value, point.step) for point in time.points(5)] == [(3.0, 1)]


def test_clock_that_is_set_back_subtracts_no_time() -> None:
    time = RunningTime()
    start(time, "a", 5_000)
    end(time, "a", 4_000)
    assert reported_seconds(time) == []
