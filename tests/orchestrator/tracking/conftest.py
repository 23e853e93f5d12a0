"""A launched sweep, its ledger, and an MLflow database in the folder of runs."""

import shutil
from collections.abc import Iterable

import pytest

from orchestrator.identity import SweepFolder
from orchestrator.ledger.events import Event
from orchestrator.ledger.lease import Holder
from orchestrator.ledger.store import Ledger
from orchestrator.plan.serialise import to_json
from orchestrator.tracking.mlflow.mlflow_runs import RunStore
from orchestrator.tracking.mlflow.mlflow_writer import MlflowWriter
from orchestrator.tracking.sync import artifact_root
from tests.support.specs.plans import make_plan


@pytest.fixture(scope="session")
def empty_mlflow(tmp_path_factory):
    """Create a database with MLflow's tables once, because that takes a second."""
    folder = tmp_path_factory.mktemp("mlflow")
    RunStore(f"sqlite:///{folder / 'mlflow.db'}", "none", folder / "artifacts")
    return folder / "mlflow.db"


@pytest.fixture
def plan():
    return make_plan(2)


@pytest.fixture
def folder(tmp_path, plan):
    root = tmp_path / "runs of me" / plan.name
    root.mkdir(parents=True)
    sweep_folder = SweepFolder(root)
    sweep_folder.plan.write_text(to_json(plan))
    return sweep_folder


@pytest.fixture
def ledger(folder):
    with Ledger.open(folder.ledger_url, folder.name, create=True) as open_ledger:
        yield open_ledger


@pytest.fixture
def database(folder, empty_mlflow):
    file = folder.root.parent / "mlflow.db"
    shutil.copy(empty_mlflow, file)
    return file


@pytest.fixture
def uri(database):
    return f"sqlite:///{database}"


@pytest.fixture
def open_writer(folder, ledger, uri, plan):
    """Return a function that opens a writer, by default to `uri`."""
    return lambda uri=uri, plan=plan: MlflowWriter(uri, plan, ledger, artifact_root(folder))


def append(ledger: Ledger, events: Iterable[Event]) -> list[Event]:
    """Append `events` under a new lease and return them."""
    appended_events = list(events)
    lease = ledger.claim(Holder.current())
    ledger.append(appended_events, lease)
    ledger.release(lease)
    return appended_events
