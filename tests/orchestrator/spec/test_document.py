"""YAML is read as plain values with lines; unreadable YAML is a fault, never a traceback."""

import os
import subprocess
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.errors import FaultCode
from orchestrator.spec import document, scalars
from orchestrator.spec.document import MAX_BYTES, Origin, dotted, read_file, read_text


@pytest.mark.parametrize(
    ("word", "value"),
    [
        ("3e-4", 3e-4),
        ("010", 10),
        ("0x1F", 31),
        ("true", True),
        ("null", None),
        ("'3e-4'", "3e-4"),
        ('"true"', "true"),
        ("yes", "yes"),
        ("2024-01-01", "2024-01-01"),
        ("nan", "nan"),
    ],
)
def test_plain_words(word: str, value: Any) -> None:
    document_file = read_text(f"key: {word}\n", "s.yaml")
    assert document_file.faults == []
    assert document_file.data == {"key": value}
    assert type(document_file.data["key"]) is type(value)


json = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(codec="utf-8", exclude_categories=("Cc", "Cs")), max_size=12)
    | st.sampled_from(
        ["3e-4", "true", "null", "yes", "0x1F", "<<", "=", "- a", "a: b", "#", " ", "\n", "1.", "~"]
    ),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text("ab.: 1e~<", max_size=5), inner, max_size=3)
    ),
    max_leaves=10,
)


@given(json, st.booleans())
def test_dumped_value_is_read_back(value: Any, flow: bool) -> None:
    document_file = read_text(scalars.dump(value, flow=flow), "s.yaml")
    assert document_file.faults == []
    assert scalars.dump(document_file.data) == scalars.dump(value)
    assert document_file.data == value


def test_every_value_has_its_line() -> None:
    document_file = read_text("a: 1\nb:\n  c.d: [1,\n    2]\n  e: {f: x}\n", "s.yaml")
    assert document_file.origins[("a",)] == Origin("s.yaml", 1)
    assert document_file.origins[("b", "c.d")] == Origin("s.yaml", 3)
    assert document_file.origins[("b", "c.d", 1)] == Origin("s.yaml", 4)
    assert document_file.origins[("b", "e", "f")] == Origin("s.yaml", 5)
    assert str(document_file.fault(("b", "c.d", 7, "x"), "no")) == "s.yaml:3: b.c.d[7].x: no"
    assert str(document_file.fault((), "no")) == "s.yaml:1: no"


def test_exploding_aliases_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(document, "MAX_VALUES", 500)
    levels = "".join(f"l{i}: &l{i} [{', '.join([f'*l{i - 1}'] * 9)}]\n" for i in range(1, 9))
    merged = f"a: &a {{{', '.join(f'k{i}: 1' for i in range(90))}}}\nb: {{<<: [{', '.join(['*a'] * 200)}]}}\n"
    for text in (f"l0: &l0 [x]\n{levels}", merged):
        assert read_text(text, "s.yaml").faults[0].code == FaultCode.OVERSIZED_VALUE


def test_reading_stops_at_the_limit_of_values(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(document, "MAX_VALUES", 500)
    for text in ("[" + "x," * 500, "".join(f"k{number}: 1\n" for number in range(250)) + "]"):
        (fault,) = read_text(text, "s.yaml").faults  # the fault at the end is not read
        assert fault.code == FaultCode.OVERSIZED_VALUE
    assert read_text("".join(f"k{number}: 1\n" for number in range(249)), "s.yaml").faults == []


@pytest.mark.parametrize(
    ("text", "code", "places"),
    [
        ("? [a]\n: 1\n", "invalid-yaml", [("", 1)]),
        ("a: !mine b\n", "invalid-yaml", [("a", 1)]),
        ("a: !!bool abc\nb: !!null x\n", "invalid-yaml", [("a", 1), ("b", 2)]),
        ('a: "\\UFFFFFFFF"\n', "invalid-yaml", [("", 1)]),
        ("a: .nan\n", "invalid-value", [("a", 1)]),
        ("a: 1e999\n", "invalid-value", [("a", 1)]),
        (f"a: {'9' * 5000}\nb: {2**63}\n", "oversized-value", [("a", 1), ("b", 2)]),
        ("a: 1\na: 2\na: 3\n", "duplicate-key", [("a", 2), ("a", 3)]),
    ],
    ids=str,
)
def test_unsupported_yaml_is_refused(text: str, code: str, places: list[tuple[str, int]]) -> None:
    faults = read_text(text, "s.yaml").faults
    assert [(fault.code, fault.path, fault.line) for fault in faults] == [(code, *place) for place in places]


def test_merge_key_provides_fields_that_explicit_fields_override() -> None:
    text = "a: &a {x: 1, y: {z: 2}}\nb: &b {x: 3, w: 4}\nc:\n  x: 5\n  <<: [*a, *b]\nd:\n  <<: *b\n"
    document_file = read_text(text, "some.yaml")
    assert not document_file.faults
    assert document_file.data["c"] == {"x": 5, "y": {"z": 2}, "w": 4}
    assert document_file.data["d"] == {"x": 3, "w": 4}
    lines = {dotted(keys): origin.line for keys, origin in document_file.origins.items()}
    assert (lines["c"], lines["c.x"], lines["c.y.z"], lines["c.w"]) == (3, 4, 1, 2)


def test_alias_of_a_mapping_with_a_merge_key_is_read() -> None:
    document = read_text("a: &a {x: 1}\nb: &b {<<: *a, x: 3}\nc: *b\n", "some.yaml")
    assert not document.faults
    assert document.data["c"] == {"x": 3}


@pytest.mark.parametrize("value", ["1", "*a"])
def test_merge_key_without_a_mapping_is_a_fault(value: str) -> None:
    document_file = read_text(f"a: &a [1]\nb: {{<<: {value}, x: 1}}\n", "some.yaml")
    assert [(fault.path, fault.line) for fault in document_file.faults] == [("b", 2)]


def test_marked_file_is_read(tmp_path: Path) -> None:
    marked = tmp_path / "marked.yaml"
    marked.write_bytes(b"\xef\xbb\xbfa: 1\r\nb: 2\r\n")
    assert read_file(marked).data == {"a": 1, "b": 2}


def test_path_that_is_no_file_is_refused_unread(tmp_path):
    for path in (tmp_path / "missing.yaml", tmp_path, Path("/dev/zero"), Path("no\0name")):
        assert_unreadable(path)


def assert_unreadable(path):
    assert [(fault.code, fault.file) for fault in read_file(path).faults] == [
        (FaultCode.UNREADABLE_FILE, str(path))
    ]


def test_file_too_large_for_a_spec_is_refused_unread(tmp_path):
    file = tmp_path / "large.yaml"
    file.write_text("#" * MAX_BYTES)
    assert read_file(file).faults == []
    with file.open("ab") as sparse:
        sparse.truncate(10**12)
    assert_unreadable(file)


def test_pipe_is_read_once_and_cached(tmp_path):
    read_end, write_end = os.pipe()
    os.write(write_end, b"name: piped\n")
    os.close(write_end)
    pipe = Path(f"/dev/fd/{read_end}")
    assert [read_file(pipe).data for _ in range(3)] == [{"name": "piped"}] * 3
    os.close(read_end)


def test_endless_pipe_is_refused():
    with subprocess.Popen(["yes"], stdout=subprocess.PIPE) as process:
        assert_unreadable(Path(f"/dev/fd/{process.stdout.fileno()}"))
        process.kill()
