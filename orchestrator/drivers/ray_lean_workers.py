"""Workers that run Tune's trials without Tune: nothing else takes them as long to load, or as much memory."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

import ray
from ray.tune.execution import class_cache, tune_controller
from ray.tune.experiment import trial
from ray.util import deregister_serializer, register_serializer

OF_TUNE = ((tune_controller, "StorageContext"), (trial, "_TrialInfo"))
"""What Tune gives every trial: where it would keep things, and names of its own. Ours reads neither."""


@contextmanager
def workers_without_tune(known: type, worker: type, *, here: bool) -> Iterator[None]:
    """Inside, Tune has trials of the trainable `known` run by `worker`, which need not be one of its own.

    What it hands them beside a trial's settings comes to them as an empty string, for to read it they would
    load Tune. `here`: they have the environment of this process anyway, since it started their Ray. A Tune
    that has no such places goes on as it will, with `known`.
    """
    ours: Any = getattr(class_cache, "_ActorClassCache", None)
    if ours is None or not hasattr(ours, "get"):
        yield
        return
    before = ours.get
    left_out = [found for module, name in OF_TUNE if (found := getattr(module, name, None)) is not None]

    @cache
    def made() -> Any:
        return _actor_class(worker, here=here)

    ours.get = lambda classes, trainable: made() if trainable is known else before(classes, trainable)
    for each in left_out:
        register_serializer(each, serializer=_empty, deserializer=str)
    try:
        yield
    finally:
        ours.get = before
        for each in left_out:
            deregister_serializer(each)


def _actor_class(worker: type, *, here: bool) -> Any:
    """Ray's class of a worker that is given the variables that Tune would give it, but for one of its own.

    A worker that is given none starts in half the time: a process that only sets them would load Ray first.
    """
    names = () if here else getattr(class_cache, "ENV_VARS_TO_PROPAGATE", ())
    variables = {name: os.environ[name] for name in sorted(names) if name in os.environ}
    return ray.remote(runtime_env={"env_vars": variables})(worker) if variables else ray.remote(worker)


def _empty(_: Any) -> str:
    return ""
