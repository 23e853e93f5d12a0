"""Run a script as a trainable, as by `python script.py --lr 0.1`, with the settings as its flags.

A script whose function has the decorator `@hydra.main` receives Hydra's overrides instead, such as `lr=0.1`,
and so does a script that calls `OmegaConf.from_cli()`.

Arguments in `trainable`, such as the subcommand in `main.py fit`, come before the flags.

A script reports by `haltsweep.current_trial().report(step, metrics)`. Alternatively it appends one line of
JSON per report to `metrics.jsonl` in its working folder: {"step": 1, "valid/loss": 0.5}. These lines are read
each time the script opens the file, and when its last line has run; exit handlers and threads run too late.
"""

import ast
import json
import os
import re
import runpy
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from greenlet import GreenletExit, getcurrent

from trainables.custom.extensions import add_to_path
from trainables.custom.function import FunctionTrial, is_at_most
from trainables.custom.generator_state import process_and_thread
from trainables.custom.open_files import flush_open_files
from trainables.custom.source_files import (
    SCRIPT,
    is_found_in,
    package_root,
    script_command,
    source_files,
)

METRICS: Final = "metrics.jsonl"
REMOVALS: Final = frozenset({"os.remove", "os.rename", "os.rmdir"})
"""Audit events after which a file of reports may not be found any more."""

HYDRA_MAIN: Final = re.compile(r"^@hydra\.main\b", re.MULTILINE)
FROM_CLI: Final = re.compile(r"\bfrom_cli\(\)")
"""Matches a call of OmegaConf that reads arguments such as `lr=0.1`."""
READS_SEED: Final = re.compile(r"""[."']seed\b(?!\()""")
"""Matches `cfg.seed` and `cfg["seed"]`, but not `np.random.seed(0)`."""

FIELDS_AS_FLAGS: Final = re.compile(
    r"\b(tyro\.cli|HfArgumentParser|CliApp\.run)\(|\b(simple_parsing|pyrallis|draccus)\b|\(Tap\)|cli_parse_args"
)
"""Matches calls of libraries that create a flag for each field of a dataclass."""
TYPER: Final = re.compile(r"^\s*(?:import|from) typer\b", re.MULTILINE)
FIRE: Final = re.compile(r"\bFire\(")
PARAMETERS_AS_FLAGS: Final = re.compile(
    r"\btyper\.(?:run|Typer)\(|\b(?:fire\.)?Fire\(|\b(?:jsonargparse\.)?(?:CLI|auto_cli)\(|\btyro\.cli\("
)
"""Matches calls of libraries that create a flag for each parameter of a function."""
READS_YAML: Final = re.compile(r"\b(jsonargparse|LightningCLI)\b")
"""Matches libraries that read a list as one value."""
ABSL_FLAG: Final = re.compile(r"""\bDEFINE_(\w+)\(\s*["']([\w-]+)["']""")
"""Matches the definition of a flag of absl: the kind of its values, and its name."""
ABSL_SEPARATORS: Final = {"list": ",", "spaceseplist": " "}
"""Separator of the values of a list, by the kind of the absl flag."""
SEED_FIELD: Final = re.compile(r"^\s+seed\s*:|\bTrainingArguments\b", re.MULTILINE)


def find_script(path: str) -> Path:
    """Return the script at `path`, relative to the current directory or to a folder of Python's path.

    Raises:
        ValueError: The script does not exist.
    """
    for folder in (Path.cwd(), *map(Path, sys.path)):
        if (file := folder / path).is_file():
            add_to_path(file.parent)
            add_to_path(folder)  # as by `python -m`
            return file.resolve()
    raise ValueError(f"must be an existing script, got {path}; it is looked for from {Path.cwd()}")


class Script:
    """Training function `script(settings, trial)` that runs a script."""

    how_to_report: Final = (
        f'append a line such as {{"step": 1, "valid/loss": 0.5}} to {METRICS} in the working folder, or call '
        "haltsweep.current_trial().report(step, metrics)"
    )
    """Remedy for a script without reports, for messages."""

    def __init__(self, file: Path, first_arguments: Sequence[str] = ()) -> None:
        """Store the path of the script, which is read when it runs, and its arguments before all flags."""
        self._file, self._first_arguments = file, first_arguments

    def _arguments(self, settings: Mapping[str, Any], seed: int, sources: Sequence[str]) -> list[str]:
        is_hydra = HYDRA_MAIN.search(self._file.read_text(encoding="utf-8", errors="replace"))
        if is_hydra or any(map(FROM_CLI.search, sources)):
            # otherwise Hydra exits instead of raising the error
            os.environ.setdefault("HYDRA_FULL_ERROR", "1")
            reads_seed = any(map(READS_SEED.search, sources)) and "seed" not in settings
            seed_override = f"{'++' if is_hydra else ''}seed={seed}"
            return [*([seed_override] if reads_seed else []), *overrides(settings)]
        return list(flags({**dict.fromkeys(_seed_flags(sources), seed), **settings}, sources))

    def _run(self) -> dict[str, Any]:
        """Run the script, and return its global names.

        A script with relative imports runs as by `python -m package.script`.
        """
        root = package_root(self._file)
        parts = self._file.relative_to(root).with_suffix("").parts
        if len(parts) > 1 and all(map(str.isidentifier, parts)):
            sys.path.insert(0, str(root))  # before an installed package of the same name
            if is_found_in(root, parts[0]):
                return runpy.run_module(".".join(parts), run_name="__main__", alter_sys=True)
        return runpy.run_path(str(self._file), run_name="__main__")

    def __call__(self, settings: Mapping[str, Any], trial: FunctionTrial) -> None:
        """Run the script until it ends; a script with a flag `--seed` receives the seed of the trial.

        Args:
            settings: Values of its flags.
            trial: Trial that receives the reports.
        """
        flags_of_settings = self._arguments(settings, trial.seed, _read_sources(self._file))
        arguments = [*self._first_arguments, *flags_of_settings]
        reader = MetricsReader(Path.cwd() / METRICS, trial)
        sys.addaudithook(reader.handle_open)
        previous_argv = sys.argv
        sys.argv = [str(self._file), *arguments]
        try:
            names = self._run()
            if callable(names.get("main")) and not _runs_main(self._file.read_bytes()):
                names["main"](arguments)
        except (Exception, SystemExit) as ending:
            if not isinstance(ending, SystemExit) or ending.code not in (None, 0):
                flush_open_files()
                with suppress(ValueError):  # an incomplete file must not hide the error of the script
                    reader.read()
                raise
        finally:
            sys.argv = previous_argv
            reader.is_open = False
        flush_open_files()
        reader.read()


def _read_sources(script: Path) -> list[str]:
    modules = [module for module in source_files(str(script)) if module.suffix == SCRIPT]
    return [module.read_text(encoding="utf-8", errors="replace") for module in modules]


def default_of_omitted_flag(script: str, setting: str) -> Any:
    """Return the default that counts if a setting is null; None if the script declares no literal default."""
    try:
        sources = _read_sources(find_script((script_command(script) or (script, []))[0]))
        default = _declaration_keywords(_flag(setting, sources), sources).get("default", "None")
        return ast.literal_eval(default)
    except (OSError, ValueError, SyntaxError, TypeError):
        return None


def flags(settings: Mapping[str, Any], sources: Sequence[str]) -> Iterator[str]:
    """Yield the command line arguments for settings.

    A name is written with `_` or `-` as in the script. A switch is given alone if true. If false, it is
    omitted, or given as `--no-name` if the script has that flag. Any other boolean is given as `--name=True`
    or `--name=False`. Null gives no argument, a mapping flags such as `--model.width`. A list gives several
    values, or a flag for each value if the script declares that.

    Args:
        settings: Values by name.
        sources: Texts of the script and of the modules that it imports from its folder.
    """
    for name, value in settings.items():
        flag = _flag(name, sources)
        if isinstance(value, Mapping):
            yield from flags({f"{name}.{key}": item for key, item in value.items()}, sources)
        elif isinstance(value, list | tuple):
            yield from _list_flags(flag, value, sources)
        elif isinstance(value, bool):
            yield from _boolean_flags(flag, value, sources)
        elif value is not None:
            yield f"{flag}={value}"


def overrides(settings: Mapping[str, Any], prefix: str = "") -> Iterator[str]:
    """Yield the overrides of a Hydra application; nested mappings become dotted keys: `model.width=8`."""
    for name, value in settings.items():
        if isinstance(value, Mapping):
            yield from overrides(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}={_hydra_value(value)}"


def _hydra_value(value: Any) -> str:
    """Return a value in the grammar of Hydra's overrides."""
    if isinstance(value, str):
        escaped = re.sub(r"(\\*)('|$)", lambda match: match[1] * 2 + "\\" * bool(match[2]) + match[2], value)
        return f"'{escaped}'"
    if isinstance(value, Mapping):
        return "{" + ",".join(f"{name}:{_hydra_value(item)}" for name, item in value.items()) + "}"
    if isinstance(value, list | tuple):
        return "[" + ",".join(map(_hydra_value, value)) + "]"
    return json.dumps(value)


def _runs_main(source: bytes) -> bool:
    """Return whether a script runs its function `main` itself, perhaps by a library that it passes it to."""
    nodes = list(ast.walk(ast.parse(source)))
    is_decorated = any(
        isinstance(node, ast.FunctionDef) and node.name == "main" and node.decorator_list for node in nodes
    )
    is_read = any(isinstance(node, ast.Name) and node.id == "main" for node in nodes)
    is_guarded = any(isinstance(node, ast.Compare) and ast.unparse(node.left) == "__name__" for node in nodes)
    return is_decorated or is_read or is_guarded


def _seed_flags(sources: Sequence[str]) -> list[str]:
    """Return the name of the flag that takes the seed, if there is one."""
    if any("LightningCLI(" in source for source in sources):
        return ["seed_everything"]
    has_fields = any(FIELDS_AS_FLAGS.search(source) for source in sources)
    has_seed = (
        _has_flag("--seed", sources)
        or (has_fields and any(map(SEED_FIELD.search, sources)))
        or any("seed" in _parameters_as_flags(source) for source in sources)
        or _absl_kind("--seed", sources) != ""
    )
    return ["seed"] if has_seed else []


def _parameters_as_flags(source: str) -> set[str]:
    """Return the parameters of the functions that typer or fire turn into commands."""
    if not PARAMETERS_AS_FLAGS.search(source):
        return set()
    try:
        nodes = list(ast.walk(ast.parse(source)))
    except (SyntaxError, ValueError):
        return set()
    command_names = {
        argument.id
        for node in nodes
        if isinstance(node, ast.Call) and PARAMETERS_AS_FLAGS.match(f"{ast.unparse(node.func)}(")
        for argument in node.args
        if isinstance(argument, ast.Name)
    }
    return {
        argument.arg
        for node in nodes
        if isinstance(node, ast.FunctionDef)
        and (
            node.name in command_names
            or any(".command" in ast.unparse(decorator) for decorator in node.decorator_list)
        )
        for argument in (*node.args.args, *node.args.kwonlyargs)
    }


def _list_flags(flag: str, values: Sequence[Any], sources: Sequence[str]) -> Iterator[str]:
    keywords = _declaration_keywords(flag, sources)
    appends = "append" in keywords.get("action", "") and "nargs" not in keywords
    kind = _absl_kind(flag, sources)
    reads_yaml = "nargs" not in keywords and any(READS_YAML.search(source) for source in sources)
    if reads_yaml or any(FIRE.search(source) for source in sources):
        yield f"{flag}={list(values)}"  # fire would take a second value for another argument
    elif kind in ABSL_SEPARATORS:
        yield f"{flag}={ABSL_SEPARATORS[kind].join(map(str, values))}"
    elif (
        appends
        or keywords.get("multiple") == "True"
        or kind.startswith("multi")
        or _is_typer_list(flag, sources)
    ):
        yield from (f"{flag}={value}" for value in values)
    else:
        yield from (flag, *map(str, values))


def _absl_kind(flag: str, sources: Sequence[str]) -> str:
    """Return the kind of an absl flag, such as `float` or `list`; empty if no source defines the flag."""
    definitions = (definition for source in sources for definition in ABSL_FLAG.findall(source))
    return next((kind for kind, name in definitions if f"--{name}" == flag), "")


def _uses_typer(sources: Sequence[str]) -> bool:
    return any(TYPER.search(source) for source in sources)


def _is_typer_list(flag: str, sources: Sequence[str]) -> bool:
    """Return whether a flag of typer collects repeated values; any other would keep only the last one."""
    name = re.escape(flag.removeprefix("--").replace("-", "_"))
    annotation = (
        rf"\b{name}\s*:\s*(?:Annotated\[\s*)?(?:Optional\[\s*)?(?:\w+\.)?(?:list|List|Sequence|set)\b"
    )
    return _uses_typer(sources) and any(re.search(annotation, source) for source in sources)


def _boolean_flags(flag: str, value: bool, sources: Sequence[str]) -> Iterator[str]:
    keywords = _declaration_keywords(flag, sources)
    if not keywords and any("tyro.cli(" in source for source in sources):
        keywords = {"action": "BooleanOptionalAction"}
    if not keywords and _uses_typer(sources):  # an explicitly named option has no `--no-name`
        keywords = {"action": "store_true" if _has_flag(flag, sources) else "BooleanOptionalAction"}
    if not keywords and any("docopt(" in source for source in sources):
        takes_value = any(re.search(rf"{re.escape(flag)}[ =](<|[A-Z])", source) for source in sources)
        keywords = {} if takes_value else {"action": "store_true"}
    action = keywords.get("action", keywords.get("is_flag"))
    if action is None:
        is_converted_by_bool = keywords.get("type") == "bool"  # bool("False") is true
        yield f"{flag}=" if is_converted_by_bool and not value else f"{flag}={value}"
    elif value:
        yield flag
    elif (
        _has_flag(negative_flag := f"--no-{flag.removeprefix('--')}", sources)
        or "BooleanOptionalAction" in action
    ):
        yield negative_flag


def _declaration_keywords(flag: str, sources: Sequence[str]) -> dict[str, str]:
    """Return the keyword arguments (source text) of the call that declares `flag`; empty if no call does."""
    for source in sources:
        if not _has_flag(flag, [source]):
            continue
        try:
            nodes = list(ast.walk(ast.parse(source)))
        except (SyntaxError, ValueError):
            continue
        for node in nodes:
            if not isinstance(node, ast.Call):
                continue
            names = [part.value for part in node.args if isinstance(part, ast.Constant)]
            if any(
                _has_flag(flag, [name]) for name in names if isinstance(name, str) and name.startswith("-")
            ):
                keywords = {part.arg: ast.unparse(part.value) for part in node.keywords if part.arg}
                is_pair = any("/" in name for name in names if isinstance(name, str))  # of click
                return {"is_flag": "True", **keywords} if is_pair else keywords
    return {}


def _flag(name: str, sources: Sequence[str]) -> str:
    """Return `--name` with `_` or `-` as in the sources."""
    forms = (f"--{name}", f"--{name.replace('_', '-')}", f"--{name.replace('-', '_')}")
    return next((form for form in forms if _has_flag(form, sources)), forms[1 if _uses_typer(sources) else 0])


def _has_flag(flag: str, sources: Sequence[str]) -> bool:
    return any(re.search(rf"{re.escape(flag)}(?![\w-])", source) for source in sources)


def _is_write_mode(mode: Any) -> bool:
    return isinstance(mode, str) and any(letter in mode for letter in "wax+")


@dataclass
class _MetricsFile:
    """A file of reports and the part of it that was read."""

    path: str
    read_bytes: int = 0
    inode: int = 0
    lines: int = 0
    """Number of lines that were read."""
    last_step: Any = None

    @classmethod
    def from_path(cls, path: str) -> "_MetricsFile":
        """Return the file at `path`; lines that it already contains count as read."""
        is_file = os.path.isfile(path)  # noqa: PTH113 - called for every opened file
        status = os.stat(path) if is_file else None  # noqa: PTH116 - as above
        return cls(path) if status is None else cls(path, status.st_size, status.st_ino)

    def read_new(self, *, is_complete: bool) -> tuple[bytes, Any]:
        """Return the text that was not read yet, and the step until which its lines were reported.

        Args:
            is_complete: Whether the last line is complete even without a line break.
        """
        reported_until: Any = None
        if not os.path.exists(self.path):  # noqa: PTH110 - as above
            self.read_bytes = 0
            return b"", None
        with open(self.path, "rb") as stream:  # noqa: PTH123 - as above
            status = os.fstat(stream.fileno())
            if status.st_size < self.read_bytes or status.st_ino != self.inode:
                self.read_bytes, self.inode = 0, status.st_ino
            if self.read_bytes == 0:  # the script has rewritten the file
                reported_until = self.last_step
            stream.seek(self.read_bytes)
            text = stream.read()
        complete_lines = text if is_complete else text[: text.rfind(b"\n") + 1]
        self.read_bytes += len(complete_lines)
        return complete_lines, reported_until


class MetricsReader:
    """Reports the lines that a script appends to a file, also in further folders that it creates."""

    def __init__(self, file: Path, trial: FunctionTrial) -> None:
        """Follow a file; lines that it already contains are not reported.

        Args:
            file: JSON lines, each with a `step`.
            trial: Trial that receives the reports.
        """
        self.is_open = True
        """Whether the script is running."""
        self._trial = trial
        self._caller = (*process_and_thread(), getcurrent())
        """Process, thread and greenlet of the script, which alone can report."""
        self._files = {str(file): _MetricsFile.from_path(str(file))}
        self._reported_lines: set[int] = set()
        """Hashes of all reported lines; a copy of a file has no new ones."""

    def handle_open(self, event: str, arguments: tuple[Any, ...]) -> None:
        """Read the files whenever the script opens one of them or deletes or renames anything.

        This function is an audit hook. Lines of other threads and of forked processes wait until the script
        itself opens a file.
        """
        if event in REMOVALS and self.is_open and self._is_in_script():
            self.read()
        if event != "open" or not self.is_open or isinstance(arguments[0], int):
            return
        path = os.path.abspath(os.fsdecode(arguments[0]))  # noqa: PTH100 - of every opened file
        if path not in self._files:
            if not path.endswith(f"/{METRICS}") or not _is_write_mode(arguments[1]):
                return
            self._files[path] = _MetricsFile.from_path(path)
        if self._is_in_script():
            self.read()
            if isinstance(arguments[2], int) and arguments[2] & os.O_TRUNC:
                self._files[path].read_bytes = 0

    def _is_in_script(self) -> bool:
        return (*process_and_thread(), getcurrent()) == self._caller

    def read(self) -> None:
        """Report all complete lines that were not reported yet.

        If the script has rewritten a file, lines up to its last reported step are skipped.

        Raises:
            ValueError: A line is not a mapping with a step.
        """
        for file in tuple(self._files.values()):
            was_open, self.is_open = self.is_open, False
            try:
                text, reported_until = file.read_new(is_complete=not was_open)
            finally:
                self.is_open = was_open
            for line in filter(None, map(bytes.strip, text.split(b"\n"))):
                file.lines += 1
                step, metrics = _parse_line(line, file.lines)
                is_reported = reported_until is not None and is_at_most(step, reported_until)
                if not is_reported and hash(line) not in self._reported_lines:
                    file.last_step = step
                    self._reported_lines.add(hash(line))
                    try:
                        self._trial.report(step, metrics)
                    except GreenletExit:  # the trial is stopped, and the script unwinds
                        self.is_open = False
                        raise


def _parse_line(line: bytes, number: int) -> tuple[Any, dict[str, Any]]:
    """Return step and metrics of a line. Raises ValueError if it is not a mapping with a step."""
    try:
        metrics = dict(json.loads(line))
        return metrics.pop("step"), metrics
    except (ValueError, TypeError, KeyError) as error:
        raise ValueError(
            f'{METRICS}:{number}: a line must be a mapping such as {{"step": 1, "valid/loss": 0.5}}, got '
            f"{line.decode(errors='replace')[:200]}"
        ) from error
