"""Environment variables of Ray's driver, and the token of a cluster."""

import pytest

from orchestrator.execution.ray.environment import ray_environment, token_location


@pytest.fixture(autouse=True)
def home(monkeypatch, tmp_path):
    for name in ("RAY_AUTH_MODE", "RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    return tmp_path


def test_every_private_ray_has_a_different_token():
    first_token, second_token = (ray_environment(private=True)["RAY_AUTH_TOKEN"] for _ in range(2))
    assert len(first_token) == len(second_token) == 64
    assert first_token != second_token


@pytest.mark.parametrize("private", [True, False])
def test_user_s_choice_of_authentication_is_respected(monkeypatch, private):
    monkeypatch.setenv("RAY_AUTH_MODE", "disabled")
    monkeypatch.setenv("RAY_AUTH_TOKEN", "token")
    assert not {"RAY_AUTH_MODE", "RAY_AUTH_TOKEN"} & ray_environment(private=private).keys()


@pytest.mark.parametrize("token_source", ["RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH", ".ray/auth_token"])
def test_token_of_a_cluster_is_read_from_the_places_that_ray_reads(monkeypatch, home, token_source):
    assert token_location() is None
    assert "RAY_AUTH_MODE" not in ray_environment(private=False)
    file = home / ".ray" / "auth_token" if token_source.startswith(".") else home / "token"
    file.parent.mkdir(exist_ok=True)
    file.write_text("token\n")
    if not token_source.startswith("."):
        monkeypatch.setenv(token_source, str(file) if token_source.endswith("PATH") else "token")
    assert token_location() == (token_source if token_source == "RAY_AUTH_TOKEN" else str(file))
    assert ray_environment(private=False)["RAY_AUTH_MODE"] == "token"
