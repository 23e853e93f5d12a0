"""`haltsweep models`, `tasks` and `spaces` describe every spec name in words and as JSON."""

import json

import pytest
from jsonschema import Draft202012Validator

from orchestrator.cli.display.fields import field_rows
from orchestrator.search import space_catalog
from trainables import catalog
from trainables.training.config import TrainConfig


@pytest.mark.parametrize("kind", ["models", "tasks"])
def test_module_pages_and_schemas_list_every_documented_field(haltsweep, kind):
    names = [line.split()[0] for line in haltsweep(kind).out.splitlines()]
    assert names == list(catalog.names(kind))
    for name in names:
        page, schema = haltsweep(kind, name).out, json.loads(haltsweep(kind, name, "--json").out)[name]
        Draft202012Validator.check_schema(schema)
        config = catalog.load(kind, name).Config
        assert set(schema["properties"]) == set(config.model_fields)
        for field, _, _, meaning in field_rows(config):
            assert f"│ {field} " in page, (name, field)
            assert meaning or field == "name", f"{field} has no docstring"


def test_training_lists_every_setting(haltsweep):
    printed = haltsweep("training").out
    assert {name for name in TrainConfig.model_fields if f"│ {name} " not in printed} == set()
    assert set(json.loads(haltsweep("training", "--json").out)["properties"]) == set(TrainConfig.model_fields)


def test_space_pages_list_ranges_and_conditions(haltsweep):
    for name in space_catalog.names_with_variants():
        page, space = haltsweep("spaces", name).out, space_catalog.load(name)
        assert all(f"│ {dimension.path} " in page for dimension in space.dimensions)
        assert all(str(constraint) in page for constraint in space.constraints)
        dimensions = json.loads(haltsweep("spaces", name, "--json").out)[name]["dimensions"]
        assert [row["path"] for row in dimensions] == [dimension.path for dimension in space.dimensions]


def test_unknown_name_is_answered_with_the_nearest_name(haltsweep):
    result = haltsweep("models", "univrsal")
    assert (result.code, result.out) == (2, "")
    assert "'universal'" in result.err
