"""Environment variables of Ray's driver, and the token of a cluster."""

import pytest

from orchestrator.execution.ray.environment import ray_environment, token_place


@pytest.fixture(autouse=True)
def home(monkeypatch, tmp_path):
    for name in ("RAY_AUTH_MODE", "RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    return tmp_path


def test_every_private_ray_has_a_token_of_its_own():
    first, second = (ray_environment(private=True)["RAY_AUTH_TOKEN"] for _ in range(2))
    assert len(first) == len(second) == 64
    assert first != second


@pytest.mark.parametrize("private", [True, False])
def test_a_choice_of_authentication_is_respected(monkeypatch, private):
    monkeypatch.setenv("RAY_AUTH_MODE", "disabled")
    monkeypatch.setenv("RAY_AUTH_TOKEN", "token")
    assert not {"RAY_AUTH_MODE", "RAY_AUTH_TOKEN"} & ray_environment(private=private).keys()


@pytest.mark.parametrize("place", ["RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH", ".ray/auth_token"])
def test_a_cluster_s_token_is_used_where_ray_looks_for_it(monkeypatch, home, place):
    assert token_place() is None
    assert "RAY_AUTH_MODE" not in ray_environment(private=False)
    file = home / ".ray" / "auth_token" if place.startswith(".") else home / "token"
    file.parent.mkdir(exist_ok=True)
    file.write_text("token\n")
    if not place.startswith("."):
        monkeypatch.setenv(place, str(file) if place.endswith("PATH") else "token")
    assert token_place() == (place if place == "RAY_AUTH_TOKEN" else str(file))
    assert ray_environment(private=False)["RAY_AUTH_MODE"] == "token"


def test_a_token_that_cannot_be_read_is_none(monkeypatch, home):
    monkeypatch.setenv("RAY_AUTH_TOKEN_PATH", str(home))
    assert token_place() is None
