"""CONTRIBUTING's path of one trial, from `launch` to its first optimiser step, is the real one."""

import ast
import re
import sys

import pytest

from tests.architecture.source import ROOT, text

ROW = re.compile(r"^\| `([\w/]+\.py)` \| `(\w+)` \|", re.MULTILINE)
SPEC = """
name: one
question: Which way does a trial take?
baseline:
  task: {name: listops, trees: 300, depth_max: 2, arguments_max: 3, train_length_max: 20,
         near_iid_examples: 5, valid_examples: 5, test_examples: 5, length_ranges: [[20, 40]]}
  model: {name: universal, width: 8, heads: 2, max_layers: 2}
  train: {steps: 1, batch_size: 4}
confirm: {seeds: [1]}
"""


def steps_of_a_trial():
    """Return files and functions of both tables, those of the inline driver first."""
    table_rows = ROW.findall(text(ROOT / "CONTRIBUTING.md"))
    return table_rows[:9], table_rows[9:]


def test_path_has_nine_files_inline_and_eleven_on_ray():
    inline, ray = steps_of_a_trial()
    assert len(inline) == 9
    assert len(inline) - 1 + len(ray) == 11


@pytest.mark.parametrize(("path", "name"), [row for table in steps_of_a_trial() for row in table])
def test_functions_of_the_path_exist(path, name):
    nodes = ast.walk(ast.parse(text(ROOT / path)))
    assert name in {getattr(node, "name", None) for node in nodes}


@pytest.mark.slow
@pytest.mark.parametrize("options", [[], ["--pdb"]])
def test_trial_follows_the_path(haltsweep, tmp_path, options):
    in_child = {"worker.py", "workload.py", "step.py"}
    slot = {"trial_process.py"}
    left_out = slot if options else in_child  # with --pdb a trial runs in this process, else in a child
    steps = [(path, name) for path, name in steps_of_a_trial()[0] if path.rpartition("/")[2] not in left_out]
    step_numbers = {(str(ROOT / path), name): number for number, (path, name) in enumerate(steps)}
    called_steps: list[int] = []

    def entered(frame, event, _):
        number = step_numbers.get((frame.f_code.co_filename, frame.f_code.co_name))
        if event == "call" and number is not None and number not in called_steps:
            called_steps.append(number)

    (tmp_path / "one.yaml").write_text(SPEC, encoding="utf-8")
    sys.setprofile(entered)
    try:
        answer = haltsweep("launch", "one.yaml", "--driver", "inline", *options)
    finally:
        sys.setprofile(None)
    assert answer.code == 0, answer.err
    assert called_steps == list(range(len(step_numbers)))
