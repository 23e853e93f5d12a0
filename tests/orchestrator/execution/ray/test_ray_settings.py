"""What Ray is told through the environment, and that nobody else is."""

import os

import pytest

from orchestrator.execution.ray.ray_settings import SETTINGS, ray_environment, token_place


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


@pytest.mark.parametrize("place", ["RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH", ".ray/auth_token"])
def test_a_cluster_s_token_is_used_where_ray_looks_for_it(monkeypatch, tmp_path, place):
    for name in ("RAY_AUTH_MODE", "RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    file = tmp_path / ".ray" / "auth_token" if place.startswith(".") else tmp_path / "token"
    file.parent.mkdir(exist_ok=True)
    assert token_place() is None
    with ray_environment(private=False):
        assert "RAY_AUTH_MODE" not in os.environ
    file.write_text("token\n")
    if not place.startswith("."):
        monkeypatch.setenv(place, str(file) if place.endswith("PATH") else "token")
    assert token_place() == (place if place == "RAY_AUTH_TOKEN" else str(file))
    with ray_environment(private=False):
        assert os.environ["RAY_AUTH_MODE"] == "token"
        assert ("RAY_AUTH_TOKEN" in os.environ) == (place == "RAY_AUTH_TOKEN"), "it stays where it is"
    monkeypatch.setenv("RAY_AUTH_MODE", "disabled")
    with ray_environment(private=False):
        assert os.environ["RAY_AUTH_MODE"] == "disabled"


def test_a_token_that_cannot_be_read_is_none(monkeypatch, tmp_path):
    monkeypatch.delenv("RAY_AUTH_TOKEN", raising=False)
    monkeypatch.setenv("RAY_AUTH_TOKEN_PATH", str(tmp_path))
    assert token_place() is None
