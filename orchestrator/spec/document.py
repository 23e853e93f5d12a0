"""Read a YAML file as plain values and record the line of each value."""

import copy
import math
import stat
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any, Final

import yaml

from orchestrator.errors import Fault, FaultCode
from orchestrator.spec import scalars
from search_spaces.wording import nearest

Keys = tuple[str | int, ...]
"""Keys and positions of a value from the root, e.g. ("arms", "minus-gate", "set", "model.gate")."""

MAX_BYTES: Final = 1_000_000
"""Maximum size of a file in bytes; parsing a larger file as YAML would take minutes."""
MAX_VALUES: Final = 100_000
"""Maximum number of keys and values, including those that aliases expand to.

Parsing more would take many seconds.
"""
_INT64: Final = 2**63


def dotted(keys: Keys) -> str:
    """Return keys as a user writes them: `confirm.seeds[1]`."""
    text = "".join(f"[{key}]" if isinstance(key, int) else f".{key}" for key in keys)
    return text.removeprefix(".")


def value_at(data: Any, keys: Keys) -> Any:
    """Return the value written at `keys` in `data`; None if there is none."""
    for key in keys:
        if isinstance(data, dict):
            data = data.get(key)
        elif isinstance(data, list) and isinstance(key, int) and key < len(data):
            data = data[key]
        else:
            return None
    return data


@dataclass(frozen=True, slots=True)
class Origin:
    """Place at which a value was written: a line of a file, or an override."""

    file: str
    line: int | None = None


@dataclass(slots=True)
class Document:
    """Content of a file, with the origin of every value and the faults found on reading."""

    data: Any
    origin: Origin
    """Origin of values without a more precise origin: the file."""
    origins: dict[Keys, Origin] = field(default_factory=dict)
    faults: list[Fault] = field(default_factory=list)
    added: set[Keys] = field(default_factory=set)
    """Keys that overrides and profiles have set and the file does not have."""
    left_out: int = 0
    """Number of published rows that overrides or a profile have removed."""

    def __deepcopy__(self, memo: dict[int, Any]) -> "Document":
        """Return a copy; values are copied deeply, origins never change and are shared."""
        copied = copy.deepcopy(self.data, memo)
        faults, added = list(self.faults), set(self.added)
        return Document(copied, self.origin, dict(self.origins), faults, added, self.left_out)

    def fault(self, keys: Keys, message: str, code: FaultCode = FaultCode.INVALID_VALUE) -> Fault:
        """Return a fault at `keys`, located at the nearest enclosing value that was written."""
        for length in range(len(keys), 0, -1):
            if keys[:length] in self.origins:
                origin = self.origins[keys[:length]]
                break
        else:
            origin = self.origin
        return Fault(message, dotted(keys), origin.file, origin.line, code)


def read_file(path: Path) -> Document:
    """Return the document at `path`; all faults, including an unreadable file, are in `faults`."""
    try:
        text = _bytes(path).decode("utf-8-sig")
    except _NotReadable as error:
        fault = Fault(str(error), file=str(path), code=FaultCode.UNREADABLE_FILE)
    except UnicodeDecodeError as error:
        message = f"must be UTF-8 text, got the byte {error.object[error.start]:#04x} at offset {error.start}"
        line = error.object.count(b"\n", 0, error.start) + 1
        fault = Fault(message, file=str(path), line=line, code=FaultCode.INVALID_YAML)
    else:
        return read_text(text, str(path))
    return Document(None, Origin(str(path)), faults=[fault])


class _NotReadable(Exception):
    """Raised if no spec can be read from a path; the message is the fault."""


def _similar_file(path: Path) -> str:
    """Return the end of a message about a missing spec, with a spec of similar name in the same folder."""
    try:
        specs = {file.stem: file for file in path.parent.glob("*.y*ml")} if not path.exists() else {}
    except (OSError, ValueError):  # the folder cannot be read, or a NUL in the path
        return ""
    similar_name = nearest(path.stem, specs)
    return f". Did you mean {specs[similar_name]}?" if similar_name is not None else ""


_piped: dict[tuple[str, int, int], bytes] = {}
"""Content of pipes by path, device and inode: a pipe can be read only once, but a spec is read repeatedly."""


def _bytes(path: Path) -> bytes:
    """Return all bytes of a regular file or a pipe; raise `_NotReadable` for any other path."""
    try:
        status = path.stat()
        # Opening a named pipe again would block indefinitely if no process writes to it any more.
        if (key := (str(path), status.st_dev, status.st_ino)) in _piped:
            return _piped[key]
        if stat.S_ISCHR(status.st_mode) or stat.S_ISBLK(status.st_mode):
            raise _NotReadable("must be a file or a pipe, got a device")
        with path.open("rb") as file:
            # One additional byte detects a file that is too large, and an endless pipe.
            content = file.read(MAX_BYTES + 1)
    except (OSError, ValueError) as error:  # ValueError: a NUL in the path
        reason = getattr(error, "strerror", None) or str(error)
        raise _NotReadable(f"cannot be read: {reason.lower()}{_similar_file(path)}") from error
    if len(content) > MAX_BYTES:
        raise _NotReadable(f"must have at most {MAX_BYTES:,} bytes, got more: no spec is so long")
    if stat.S_ISFIFO(status.st_mode):
        _piped[key] = content
    return content


def read_text(text: str, file: str, *, lines: bool = True) -> Document:
    """Return the document in `text`.

    Args:
        text: YAML text.
        file: Name of the file for messages.
        lines: Whether faults state lines; False for text that is not a file.
    """
    return copy.deepcopy(_read_once(text, Origin(file, 1 if lines else None)))


@lru_cache(maxsize=32)
def _read_once(text: str, origin: Origin) -> Document:
    """Return the document in `text`; it is cached because a command reads a spec several times."""
    document = Document(None, origin)
    try:
        reader = _NodeReader(text, document)
        node = reader.get_single_node()
        document.data = reader.value(node, ()) if node is not None else None
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        _refuse(document, (), _plain(error, lines=origin.line is not None), mark.line if mark else 0)
    except yaml.reader.ReaderError as error:
        line = text.count("\n", 0, error.position)
        _refuse(document, (), f"must hold no control characters, got {text[error.position]!r}", line)
    except OverflowError:
        _refuse(document, (), "must contain only Unicode characters, got an escape above U+10FFFF", 0)
    except RecursionError:
        _refuse(document, (), "is nested too deeply to be read", 0)
    except _TooLarge:
        message = f"must hold at most {MAX_VALUES:,} keys and values, aliases counted as often as used"
        _refuse(document, (), message, 0, FaultCode.OVERSIZED_VALUE)
    return document


def _refuse(
    document: Document, keys: Keys, message: str, line: int, code: FaultCode = FaultCode.INVALID_YAML
) -> None:
    """Record a fault on `line`, counted from 0."""
    origin = _origin(document, line)
    document.faults.append(Fault(message, dotted(keys), origin.file, origin.line, code))


def _origin(document: Document, line: int) -> Origin:
    """Return the origin of a value on `line`, counted from 0."""
    return Origin(document.origin.file, line + 1) if document.origin.line is not None else document.origin


class _TooLarge(Exception):
    """Raised if a document has too many values, possibly by nested aliases."""


class _NodeReader(yaml.SafeLoader):
    """Loader that composes nodes by the rules of `scalars` and converts them to values with origins."""

    yaml_implicit_resolvers = scalars.RESOLVERS

    def __init__(self, text: str, document: Document) -> None:
        super().__init__(text)
        self.document = document
        self.num_nodes = self.num_values = 0
        self.open: set[int] = set()
        self.own_keys: dict[int, set[int]] = {}
        """Key nodes of each mapping before the fields of merge keys were inserted."""

    def compose_node(self, parent: yaml.Node | None, index: Any) -> yaml.Node | None:
        """Return the next node; raise `_TooLarge` as soon as the document has too many nodes."""
        self.num_nodes += 1
        if self.num_nodes > MAX_VALUES:
            raise _TooLarge
        return super().compose_node(parent, index)

    def flatten_mapping(self, node: yaml.MappingNode) -> None:
        """Insert the fields of merge keys (<<) before the other fields; called for merged mappings too."""
        self._count(len(node.value))
        self.own_keys.setdefault(id(node), {id(key) for key, _ in node.value})  # an alias is visited again
        super().flatten_mapping(node)

    def _count(self, number: int) -> None:
        self.num_values += number
        if self.num_values > MAX_VALUES:
            raise _TooLarge

    def value(self, node: yaml.Node, keys: Keys, line: int | None = None) -> Any:
        """Return the value of `node`; its origin is `line` (the line of its key), or else its own line."""
        self._count(1)
        line = node.start_mark.line if line is None else line
        self.document.origins[keys] = _origin(self.document, line)
        if id(node) in self.open:
            _refuse(self.document, keys, "must not contain itself through an alias", line)
            return None
        self.open.add(id(node))
        try:
            match node:
                case yaml.MappingNode(tag="tag:yaml.org,2002:map"):
                    return self._mapping(node, keys)
                case yaml.SequenceNode(tag="tag:yaml.org,2002:seq"):
                    return [self.value(item, (*keys, place)) for place, item in enumerate(node.value)]
                case yaml.ScalarNode() if node.tag in scalars.CONVERTERS:
                    return self._scalar(node, keys, line)
                case _:
                    tag = node.tag.replace("tag:yaml.org,2002:", "!!")
                    _refuse(self.document, keys, f"tags are not read, got {tag}", line)
                    return None
        finally:
            self.open.discard(id(node))

    def _mapping(self, node: yaml.MappingNode, keys: Keys) -> dict[str, Any]:
        values: dict[str, Any] = {}
        first_lines = dict[str, int]()
        merge_lines = [key.start_mark.line for key, _ in node.value if key.tag == scalars.MERGE_TAG]
        try:
            self.flatten_mapping(node)
        except yaml.constructor.ConstructorError:
            message = "a merge key (<<) must have an alias of a mapping, or a list of them"
            _refuse(self.document, keys, message, merge_lines[0])
        for key_node, value_node in node.value:
            line = key_node.start_mark.line
            if not isinstance(key_node, yaml.ScalarNode) or key_node.tag != scalars.STR_TAG:
                text = key_node.value if isinstance(key_node, yaml.ScalarNode) else None
                remedy = f"{text}: write '{text}' in quotes" if text else "an empty key"
                got = remedy if text is not None else "a list or mapping"
                _refuse(self.document, keys, f"keys must be texts, got {got}", line)
                continue
            key = key_node.value
            value = self.value(value_node, (*keys, key), line)
            if key in first_lines:
                has_lines = self.document.origin.line is not None
                also = f", also on line {first_lines[key] + 1}" if has_lines else f", got {key} twice"
                message = f"must be given once{also}"
                _refuse(self.document, (*keys, key), message, line, FaultCode.DUPLICATE_KEY)
                continue
            values[key] = value
            if id(key_node) in self.own_keys[id(node)]:
                first_lines[key] = line
        return values

    def _scalar(self, node: yaml.ScalarNode, keys: Keys, line: int) -> scalars.Scalar:
        try:
            value = scalars.CONVERTERS[node.tag](node.value)
            is_oversized = isinstance(value, int) and not -_INT64 <= value < _INT64
        except ValueError:  # a number with thousands of digits
            is_oversized = True
        if is_oversized:
            is_number = node.value.lstrip("+-").isdigit()
            requirement = "must fit into 64 bits" if is_number else "must be a value of its tag"
            code = FaultCode.OVERSIZED_VALUE if is_number else FaultCode.INVALID_YAML
            _refuse(self.document, keys, f"{requirement}, got {node.value[:40]}", line, code)
            return None
        if isinstance(value, float) and not math.isfinite(value):
            message = f"must be a finite number, got {node.value}"
            _refuse(self.document, keys, message, line, FaultCode.INVALID_VALUE)
            return None
        return value


_REMEDIES: Final = {
    r"'\t'": "indent with spaces, not tabs",
    "that cannot start any token": "put a text that begins so in quotes",
    "mapping values are not allowed here": (
        "write `key: value`, begin the keys of one section in the same column, and put a text with ': ' in "
        "it in quotes"
    ),
    "but found '<scalar>'": "put the whole text in quotes, or a comma between two",
    "expected <block end>": "begin the keys or items of one section in the same column",
    "could not find expected ':'": "write a key as `key: value`, with a space behind the colon",
}
"""Advice by part of a message of PyYAML; the first match is used."""


def _plain(error: yaml.MarkedYAMLError, *, lines: bool) -> str:
    """Return PyYAML's message on one line, with the line where the construct begins.

    The beginning is stated because a missing quote is noticed only at the end of the file.
    """
    context, begin, end = error.context or "", error.context_mark, error.problem_mark
    spread = begin is not None and end is not None and begin.line != end.line
    if lines and begin is not None and spread and context.startswith("while "):
        context += f" that begins on line {begin.line + 1}"
    problem = ", ".join(part for part in (context, error.problem) if part)
    remedy = next((do for part, do in _REMEDIES.items() if part in problem), None)
    return f"must be YAML, but {problem}{f': {remedy}' if remedy else ''}"
