"""Workers that run Tune's trials without Tune: nothing else takes them as long to load, or as much memory."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from ray.tune.execution import class_cache, tune_controller
from ray.tune.experiment import trial
from ray.util import deregister_serializer, register_serializer

OF_TUNE = ((tune_controller, "StorageContext"), (trial, "_TrialInfo"))
"""What Tune gives every trial: where it would keep things, and names of its own. Ours reads neither."""


@contextmanager
def workers_without_tune(known: type, worker: type) -> Iterator[None]:
    """Inside, Tune has trials of the trainable `known` run by `worker`, which need not be one of its own.

    What it hands them beside a trial's settings comes to them as an empty string, for to read it they would
    load Tune. A Tune that has no such places goes on as it will, with `known`.
    """
    ours: Any = getattr(class_cache, "_ActorClassCache", None)
    if ours is None or not hasattr(ours, "get"):
        yield
        return
    before = ours.get
    left_out = [found for module, name in OF_TUNE if (found := getattr(module, name, None)) is not None]
    ours.get = lambda cache, trainable: before(cache, worker if trainable is known else trainable)
    for each in left_out:
        register_serializer(each, serializer=_empty, deserializer=str)
    try:
        yield
    finally:
        ours.get = before
        for each in left_out:
            deregister_serializer(each)


def _empty(_: Any) -> str:
    return ""
