"""Links to pages of the MLflow UI, as its server provides them."""

import base64
from dataclasses import replace
from urllib.parse import parse_qs, urlsplit

import pytest

from orchestrator.errors import InputError, StoreError
from orchestrator.tracking.mlflow.links import find_links
from tests.support.mlflow.mlflow_answers import answering, with_arms
from tests.support.specs.plans import make_arm, make_plan

PLAN = replace(
    make_plan([make_arm(name) for name in ("minus-gate", "baseline", "not-begun")]), name="a sweep"
)


def parse_link(link: str) -> dict[str, list[str]]:
    return parse_qs(urlsplit(link).fragment.partition("?")[2])


def test_arms_are_compared_in_the_order_of_the_plan() -> None:
    with answering(with_arms("baseline", "minus-gate", "of-another-plan")) as server:
        links = find_links(f"{server.url}/", PLAN)
    assert server.asked[0] == ("experiments/get-by-name?experiment_name=a+sweep", None)
    assert links.comparison.startswith(f"{server.url}/#/compare-runs?runs="), "MLflow looks for `?runs`"
    assert parse_link(links.comparison)["runs"] == ['["id-minus-gate","id-baseline"]']
    assert parse_link(links.comparison)["experiments"] == ['["7"]']
    assert links.runs == f"{server.url}/#/experiments/7/runs?workflowType=machine_learning"
    assert parse_link(links.arms)["viewStateShareKey"] == ["haltsweep-arms"]


def test_missing_sweep_raises_an_input_error() -> None:
    with (
        answering({"experiments/get-by-name": (404, {"error_code": "RESOURCE_DOES_NOT_EXIST"})}) as server,
        pytest.raises(InputError, match="`haltsweep sync a sweep`"),
    ):
        find_links(server.url, PLAN)


@pytest.fixture(autouse=True)
def no_retries(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    monkeypatch.setenv("no_proxy", "")


def test_invalid_answer_raises_a_store_error() -> None:
    with answering({"experiments/get-by-name": (200, "<html>")}) as server, pytest.raises(StoreError):
        find_links(server.url, PLAN)


def test_server_on_this_machine_is_asked_without_a_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:1")
    with answering(with_arms("baseline")) as server:
        assert "id-baseline" in find_links(server.url, PLAN).comparison


def test_password_is_sent_and_not_printed() -> None:
    with answering(with_arms("baseline")) as server:
        links = find_links(server.url.replace("://", "://ann:p%40ss@"), PLAN)
    assert set(server.credentials) == {"Basic " + base64.b64encode(b"ann:p@ss").decode()}
    assert all(link.startswith(server.url) for link in (links.runs, links.arms, links.comparison))
    with pytest.raises(StoreError) as caught:
        find_links(server.url.replace("://", "://ann:p%40ss@"), PLAN)
    assert "p%40ss" not in str(caught.value)
