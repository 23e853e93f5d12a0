"""The documented functions work in a notebook kernel and show figures."""

import base64
from dataclasses import replace

import pytest

from tests.support.specs.plans import make_plan
from tests.support.sweeps.finished import finished
from trainables.metrics import Metric

CELLS = (
    "%matplotlib inline\nfrom orchestrator.read import figures, measurements, report, trials",
    "table = trials('synthetic').to_pandas()\ntable.groupby(['arm', 'phase']).size().sum()",
    "table = measurements('synthetic').to_pandas()\ntable[table.metric == 'valid/score'].trial_id.nunique()",
    "[tally.arm for tally in report('synthetic').tallies]",
    "images = figures('synthetic')\nnext(iter(images.values()))",
    "import matplotlib.pyplot as plt\nplt.plot([1, 2]);",
)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # the libraries of the notebook give warnings
def test_notebook_shows_tables_and_figures(tmp_path, monkeypatch):
    import nbformat
    from nbclient import NotebookClient

    score = Metric("score", better="max", shown=("headline",))
    plan = replace(make_plan(2), metrics=(score,))
    monkeypatch.setenv("HALTSWEEP_RUNS", str(finished(tmp_path, plan).root.parent))
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell) for cell in CELLS])
    NotebookClient(notebook, timeout=300, kernel_name="python3").execute(cwd=str(tmp_path))
    outputs = [cell.outputs for cell in notebook.cells]
    number = str(len(plan.trials))
    assert outputs[1][0].data["text/plain"] in {number, f"np.int64({number})"}
    assert outputs[2][0].data["text/plain"] == number
    assert outputs[3][0].data["text/plain"] == "['arm-0', 'arm-1']"
    assert base64.b64decode(outputs[4][0].data["image/png"]).startswith(b"\x89PNG")
    assert "image/png" in outputs[5][0].data, "other figures of the notebook still appear"
