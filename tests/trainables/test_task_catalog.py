import pytest
from pydantic import ValidationError

from trainables import task_catalog


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
