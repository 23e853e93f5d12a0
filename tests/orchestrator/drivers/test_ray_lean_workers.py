"""Workers without Tune: what they are told, and that Tune is as before afterwards."""

import pytest

from orchestrator.drivers.ray_settings import ray_environment


class Known:
    """What Tune knows."""


class Worker:
    """What does the work."""


@pytest.mark.parametrize("here", [True, False])
def test_a_cluster_s_workers_are_told_the_variables_that_tune_tells_its_own(monkeypatch, here):
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "marker")
    with ray_environment(private=True):
        from ray.tune.execution.class_cache import _ActorClassCache

        from orchestrator.drivers.ray_lean_workers import workers_without_tune

        before = _ActorClassCache.get
        monkeypatch.setattr("orchestrator.drivers.ray_lean_workers.OF_TUNE", ())
        with workers_without_tune(Known, Worker, here=here):
            made, other = _ActorClassCache().get(Known), _ActorClassCache().get(Worker)
            assert made is _ActorClassCache().get(Known), "Ray keeps a class for good: one is sent"
    assert issubclass(made.__ray_metadata__.modified_class, Worker)
    theirs = other._default_options["runtime_env"]["env_vars"]
    assert theirs["AWS_SECRET_ACCESS_KEY"] == "marker"
    if here:
        assert "runtime_env" not in made._default_options, "for its sake a process would load Ray twice"
    else:
        shown = made._default_options["runtime_env"]["env_vars"]
        assert {**shown, "PL_DISABLE_FORK": "1"} == theirs
    assert _ActorClassCache.get is before
