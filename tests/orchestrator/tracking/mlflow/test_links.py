"""Pages of the MLflow UI, as asked of its server."""

import base64
from urllib.parse import parse_qs, urlsplit

import pytest

from orchestrator.errors import InputError, StoreError
from orchestrator.tracking.mlflow.arms_view import NOTE_TAG, TAG, arms_view, view_tags
from orchestrator.tracking.mlflow.links import find_links
from tests.support.mlflow.mlflow_answers import answering, with_arms


def query(link: str) -> dict[str, list[str]]:
    return parse_qs(urlsplit(link).fragment.partition("?")[2])


def test_arms_are_compared_in_the_order_of_the_plan() -> None:
    with answering(with_arms("baseline", "minus-gate", "of-another-plan")) as server:
        links = find_links(f"{server.url}/", "a sweep", ["minus-gate", "baseline", "not-begun"])
    assert server.asked[0] == ("experiments/get-by-name?experiment_name=a+sweep", None)
    assert links.comparison.startswith(f"{server.url}/#/compare-runs?runs="), "MLflow looks for `?runs`"
    assert query(links.comparison)["runs"] == ['["id-minus-gate","id-baseline"]']
    assert query(links.comparison)["experiments"] == ['["7"]']
    assert links.runs == f"{server.url}/#/experiments/7/runs?workflowType=machine_learning"
    assert query(links.arms)["viewStateShareKey"] == ["haltsweep-arms"]


def test_an_experiment_offers_the_view_by_link_and_in_its_description() -> None:
    made = view_tags("7", {})
    assert made[TAG] == arms_view()
    assert "(#/experiments/7/runs?viewStateShareKey=haltsweep-arms&" in made[NOTE_TAG]
    assert view_tags("7", made) == {}, "what is there is not sent again"
    assert view_tags("8", made).keys() == {NOTE_TAG}, "a link to another experiment is replaced"


def test_a_description_that_somebody_wrote_is_kept() -> None:
    assert NOTE_TAG not in view_tags("7", {NOTE_TAG: "Read this first."})


def test_a_sweep_that_is_not_there_is_the_users_fault() -> None:
    with (
        answering({"experiments/get-by-name": (404, {"error_code": "RESOURCE_DOES_NOT_EXIST"})}) as server,
        pytest.raises(InputError, match="`haltsweep sync gates`"),
    ):
        find_links(server.url, "gates", [])


@pytest.mark.parametrize("answer", [(401, ""), (200, "<html>")])
def test_an_answer_that_makes_no_sense_is_an_error(answer: tuple[int, str]) -> None:
    with answering({"experiments/get-by-name": answer}) as server, pytest.raises(StoreError):
        find_links(server.url, "gates", [])


def test_a_server_that_is_away_is_told() -> None:
    with answering({}) as server:
        pass
    with pytest.raises(StoreError):
        find_links(server.url, "gates", [])


def test_a_proxy_is_not_asked_for_this_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:1")
    with answering(with_arms("baseline")) as server:
        assert "id-baseline" in find_links(server.url, "gates", ["baseline"]).comparison


def test_a_password_is_sent_and_never_shown() -> None:
    with answering(with_arms("baseline")) as server:
        links = find_links(server.url.replace("://", "://ann:p%40ss@"), "gates", ["baseline"])
    assert set(server.credentials) == {"Basic " + base64.b64encode(b"ann:p@ss").decode()}
    assert all(link.startswith(server.url) for link in (links.runs, links.arms, links.comparison))
    with pytest.raises(StoreError, match=r"MLflow at http://127[^@]*must answer"):
        find_links(server.url.replace("://", "://ann:p%40ss@"), "gates", [])
