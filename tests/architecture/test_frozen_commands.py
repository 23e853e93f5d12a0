"""Commands and options change only on purpose, because scripts depend on them.

After an intended change, run `python -m tests.architecture.test_frozen_commands` and read the diff.
"""

from pathlib import Path

import typer

from orchestrator.cli.main import app
from tests.support.processes.commands import commands_by_name

FROZEN = Path(__file__).parents[1] / "golden" / "commands.txt"


def command_summary():
    """Return a block of text for each command: arguments in order, options by name, with defaults."""
    blocks = []
    for name, command in sorted(commands_by_name(typer.main.get_command(app)).items()):
        arguments = [parameter for parameter in command.params if parameter.param_type_name == "argument"]
        options = [parameter for parameter in command.params if parameter.param_type_name == "option"]
        blocks.append("\n".join([name, *map(_argument, arguments), *sorted(map(_option, options))]))
    return "\n\n".join(blocks) + "\n"


def _argument(parameter):
    suffix, optional = "..." if parameter.nargs == -1 else "", "" if parameter.required else " (optional)"
    return f"  {parameter.name}{suffix}{optional}"


def _option(parameter):
    names = "/".join((*parameter.opts, *parameter.secondary_opts))
    if parameter.is_flag:
        return f"  {names}"
    default = f" = {parameter.default}" if parameter.default is not None else ""
    return f"  {names} VALUE{default}"


def test_commands_and_options_are_unchanged():
    assert command_summary() == FROZEN.read_text(encoding="utf-8")


if __name__ == "__main__":
    FROZEN.write_text(command_summary(), encoding="utf-8")
