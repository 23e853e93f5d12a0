"""Create the JSON Schema of a spec, with the settings of every task and model, for editors.

The schema validates one value at a time. `haltsweep check` validates the remaining rules, with better
messages.
"""

from collections.abc import Iterator, Mapping
from typing import Any, Final

from orchestrator.search import space_catalog as spaces
from orchestrator.spec.kinds import ARM_PATTERN, CUSTOM_PATH_PATTERN, NAME_PATTERN, PATH_PATTERN, range_schema
from orchestrator.spec.types import CustomSpec, Spec

DIALECT: Final = "https://json-schema.org/draft/2020-12/schema"
DOTTED_NAME_SCHEMA: Final = {"type": "string", "pattern": r"^[^\W\d]\w*(\.[^\W\d]\w*)+$"}
"""Schema of the name of a model, task or space in a custom module, whose fields are not in the schema."""
CLASS_NAME: Final = {"type": "string", "pattern": r"^[^\W\d]\w*([.:][^\W\d]\w*)+$"}
"""Schema of the name of a custom sampler or stopper."""
_EARLIER: Final = {
    "type": "object",
    "required": ["from"],
    "properties": {"from": {"type": "string", "minLength": 1}, "found": {"type": "object"}},
    "additionalProperties": False,
}
"""Schema of a point from another sweep."""
Schema = dict[str, Any]


def json_schema() -> Schema:
    """Return the schema of a spec file; this loads every task and model, and torch with them."""
    definitions: Schema = {}
    _adopt("built-in", _built_in(), definitions)
    _adopt("own", _custom_schema(), definitions)
    fields = definitions["built-in"]["properties"].items()
    return {
        "$schema": DIALECT,
        "title": "haltsweep spec",
        "type": "object",
        # Editors display these descriptions; validation uses the definitions below.
        "properties": {name: {"description": _description(field, definitions)} for name, field in fields},
        "if": {"properties": {"trainable": {"type": "string"}}, "required": ["trainable"]},
        "then": {"$ref": "#/$defs/own"},
        "else": {"$ref": "#/$defs/built-in"},
        "$defs": definitions,
    }


def _description(field: Schema, definitions: Schema) -> str:
    """Return the description of a field, or else of the section to which the field refers."""
    if "description" in field:
        return str(field["description"])
    refers = [field, *field.get("anyOf", []), field.get("items", {})]
    names = [reference["$ref"].rpartition("/")[2] for reference in refers if "$ref" in reference]
    return next((str(definitions[name]["description"]) for name in names if name in definitions), "")


def _custom_schema() -> Schema:
    """Return the schema of a spec with a custom trainable, whose settings may have any value."""
    schema: Schema = CustomSpec.model_json_schema()
    _replace(schema, PATH_PATTERN, CUSTOM_PATH_PATTERN)
    _name_components(schema["$defs"]["Search"]["properties"])
    return schema


def _name_components(search: Schema) -> None:
    """Add the known names of samplers and stoppers."""
    from orchestrator.search.samplers import SAMPLER, STOPPER, known_names

    for kind in (SAMPLER, STOPPER):
        name = {"anyOf": [{"enum": known_names(kind)}, CLASS_NAME]}
        settings = {"type": "object", "properties": {"name": name}, "required": ["name"]}
        null = [{"type": "null"}] if kind is STOPPER else []
        search[kind.noun]["anyOf"] = [name, settings, *null]


def _replace(schema: Any, old: str, new: str) -> None:
    """Replace every value `old` by `new`, at any depth."""
    for key, value in schema.items() if isinstance(schema, dict) else enumerate(schema):
        if value == old:
            schema[key] = new
        elif isinstance(value, dict | list):
            _replace(value, old, new)


def _built_in() -> Schema:
    full_schema: Schema = Spec.model_json_schema()
    definitions: Schema = full_schema["$defs"]
    settings = _settings(definitions)
    definitions["Baseline"]["properties"] |= settings
    fields = _fields(settings, definitions)
    definitions["ArmSpec"]["properties"]["set"] |= _by_path(fields)
    definitions["ArmSpec"]["properties"]["drop"]["items"] = {"enum": sorted(fields)}
    search = definitions["Search"]["properties"]
    definitions["Range"] = range_schema()
    _name_components(search)
    search["also"] |= _by_path({path: {"$ref": "#/$defs/Range"} for path in fields})
    search["also"]["default"] = {}
    search["first"]["items"] = {"anyOf": [_by_path(fields), _EARLIER]}
    search["spaces"]["items"] = {"anyOf": [{"enum": list(spaces.names_with_variants())}, DOTTED_NAME_SCHEMA]}
    properties = full_schema["properties"]
    axes = {
        path: {"type": "array", "minItems": 1, "uniqueItems": True, "items": field_schema}
        for path, field_schema in fields.items()
    }
    properties["grid"] |= _by_path(axes)
    properties["contexts"] |= _by_path(axes)
    evaluated = {path: axis for path, axis in axes.items() if not path.startswith("train.")}
    properties["posthoc"] |= _by_path(evaluated)
    for section, pattern in (("arms", ARM_PATTERN), ("components", NAME_PATTERN)):
        kinds = [{"$ref": f"#/$defs/{kind}"} for kind in ("ArmSpec", "ControlSpec")]
        arms = {pattern: kinds[0] if section == "components" else {"anyOf": kinds}}
        properties[section] |= {"patternProperties": arms, "additionalProperties": False}
    properties["arms"]["propertyNames"] = {"not": {"const": "baseline"}}
    properties["profiles"]["additionalProperties"] = False
    return full_schema


def _by_path(fields: Mapping[str, Schema]) -> Schema:
    """Return the schema of a mapping with only these field paths as keys."""
    return {"properties": dict(fields), "patternProperties": {}, "additionalProperties": False}


def _settings(definitions: Schema) -> Schema:
    """Return schemas of `task`, `model` and `train`; add the schemas they refer to to `definitions`."""
    from trainables import catalog
    from trainables.training.config import TrainConfig

    schema: Schema = {}
    kinds: tuple[tuple[str, catalog.Kind], ...] = (("task", "tasks"), ("model", "models"))
    for root, kind in kinds:
        component_names = [name for name, _ in catalog.usable(kind)]
        for name in component_names:
            _adopt(f"{root}.{name}", catalog.config_class(kind, name).model_json_schema(), definitions)
        schema[root] = {
            "type": "object",
            "required": ["name"],
            "properties": {"name": {"anyOf": [{"enum": component_names}, DOTTED_NAME_SCHEMA]}},
            "allOf": [
                {
                    "if": {"properties": {"name": {"const": name}}, "required": ["name"]},
                    "then": {"$ref": f"#/$defs/{root}.{name}"},
                }
                for name in component_names
            ],
        }
    _adopt("train", TrainConfig.model_json_schema(), definitions)
    schema["train"] = {"$ref": "#/$defs/train"}
    return schema


def _adopt(name: str, schema: Schema, definitions: Schema) -> None:
    """Add `schema` to `definitions` under `name`, and its nested definitions with `name` as prefix."""
    brought = schema.pop("$defs", {})
    definitions[name] = _rename_references(schema, name)
    for inner, definition in brought.items():
        definitions[f"{name}.{inner}"] = _rename_references(definition, name)


def _rename_references(schema: Any, name: str) -> Any:
    match schema:
        case {"$ref": str(target), **rest}:
            return {"$ref": target.replace("#/$defs/", f"#/$defs/{name}."), **_rename_references(rest, name)}
        case dict():
            items = schema.items()
            return {key: _rename_references(item, name) for key, item in items if key != "discriminator"}
        case list():
            return [_rename_references(item, name) for item in schema]
        case _:
            return schema


def _fields(settings: Schema, definitions: Schema) -> dict[str, Schema]:
    """Return the schema of every field path of all tasks, models and training."""
    schemas_by_path: dict[str, list[Schema]] = {}
    for root, schema in settings.items():
        for path, schema_at_path in _walk(root, schema, definitions):
            if schema_at_path not in schemas_by_path.setdefault(path, []):
                schemas_by_path[path].append(schema_at_path)
    ordered = sorted(schemas_by_path.items())
    return {path: ones[0] if len(ones) == 1 else {"anyOf": ones} for path, ones in ordered}


def _walk(path: str, schema: Schema, definitions: Schema) -> Iterator[tuple[str, Schema]]:
    """Yield the fields below `path`, which `schema` describes."""
    if "$ref" in schema:
        yield from _walk(path, definitions[schema["$ref"].removeprefix("#/$defs/")], definitions)
    for name, inner in schema.get("properties", {}).items():
        yield f"{path}.{name}", inner
        yield from _walk(f"{path}.{name}", inner, definitions)
    for branch in (*schema.get("anyOf", ()), *schema.get("oneOf", ()), *schema.get("allOf", ())):
        yield from _walk(path, branch.get("then", branch), definitions)
