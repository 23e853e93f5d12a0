"""What Ray is told through the environment, and that nobody else is."""

import os

from orchestrator.drivers.ray_settings import SETTINGS, ray_environment


def test_the_environment_is_as_before_afterwards(monkeypatch):
    monkeypatch.setenv("TUNE_GLOBAL_CHECKPOINT_S", "7")
    monkeypatch.delenv("RAY_USAGE_STATS_ENABLED", raising=False)
    before = dict(os.environ)
    with ray_environment(private=True):
        assert {name: os.environ[name] for name in SETTINGS} == SETTINGS
    assert dict(os.environ) == before


def test_a_choice_of_authentication_is_respected(monkeypatch):
    monkeypatch.setenv("RAY_AUTH_MODE", "disabled")
    with ray_environment(private=True):
        assert os.environ["RAY_AUTH_MODE"] == "disabled"
        assert "RAY_AUTH_TOKEN" not in os.environ
