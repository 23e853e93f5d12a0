import pytest
from pydantic import ValidationError

from trainables import task_catalog
from trainables.custom.extensions import UnknownName


def test_task_config_has_defaults() -> None:
    config = task_catalog.task_config({"name": "listops", "train_length_max": 100})
    assert config.model_dump()["trees"] == 100_000
    assert task_catalog.task_name(config) == "listops"
    assert task_catalog.shape(config).num_classes == 10
    assert task_catalog.splits(config)[0].name == "train"


def test_unknown_task_error_suggests_and_lists_names() -> None:
    with pytest.raises(UnknownName, match=r"'lisstops'.*'listops'.*listops"):
        task_catalog.task_config({"name": "lisstops"})


@pytest.mark.parametrize(
    ("raw", "location"),
    [
        ({}, ("name",)),
        ({"name": 3}, ("name",)),
        ({"name": "listops", "train_lenght_max": 100}, ("train_lenght_max",)),
        ({"name": "listops", "train_length_max": 100.0}, ("train_length_max",)),
        ({"name": "listops", "length_ranges": [[20, "40"]]}, ("length_ranges", 0, 1)),
    ],
)
def test_validation_error_has_the_location(raw: dict[str, object], location: tuple[str | int, ...]) -> None:
    with pytest.raises(ValidationError) as caught:
        task_catalog.task_config(raw)
    assert caught.value.errors()[0]["loc"] == location
