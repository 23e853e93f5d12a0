"""A search space is a file that defines `published`."""

import pytest

from orchestrator.search import space_catalog as catalog
from search_spaces import halting
from trainables.custom.extensions import UnknownName


def test_space_names_come_from_files() -> None:
    assert set(catalog.space_names()) >= {"chunking", "depth", "halting", "optimiser"}
    assert not {"dimensions", "algebra", "parse", "catalog", "paths", "wording"} & set(catalog.space_names())
    assert "halting.wide" in catalog.names_with_variants()
    assert "halting.published" not in catalog.names_with_variants()


def test_published_variant_is_the_default() -> None:
    assert catalog.load("halting") is halting.published
    assert catalog.load("halting.wide") is halting.wide


@pytest.mark.parametrize(
    ("name", "message"),
    [("haltin", "'haltin'.*'halting'.* chunking, "), ("halting.wid", "'halting.wid'.*'halting.wide'")],
)
def test_unknown_space_is_refused_with_a_suggestion(name: str, message: str) -> None:
    with pytest.raises(UnknownName, match=message):
        catalog.load(name)


def test_description_is_the_first_line_of_the_file() -> None:
    assert catalog.describe("halting.wide").startswith(halting.__doc__.splitlines()[0].rstrip("."))
