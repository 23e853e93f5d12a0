"""A picture of a finished sweep in the MLflow UI: `python -m tests.e2e.screenshot NAME --out FILE`."""

import argparse
from pathlib import Path

from orchestrator.cli.locations import find_sweep, tracking_uri
from orchestrator.identity import SweepFolder
from orchestrator.plan.serialise import from_json
from orchestrator.tracking.links import find_links
from orchestrator.tracking.server import choose_port, serving
from tests.e2e import mlflow_page


def main() -> None:
    """Serve the store of the sweep, open the comparison of its arms, and save what it shows."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("name", help="a finished sweep")
    parser.add_argument("--out", type=Path, required=True, help="file to write, PNG")
    parser.add_argument("--arms", action="store_true", help="the list of the arms, not their comparison")
    parser.add_argument("--runs", type=Path, default=Path("runs"), help="folder of the sweeps")
    parser.add_argument("--metric", default="near-iid/accuracy", help="first of the metrics on view")
    given = parser.parse_args()
    if lacking := mlflow_page.missing():
        parser.error(lacking)
    take(find_sweep(given.name, given.runs), given.out, given.metric, arms=given.arms)


def take(folder: SweepFolder, out: Path, metric: str, *, arms: bool = False) -> None:
    """Write the picture to `out`."""
    plan = from_json(folder.plan.read_text(encoding="utf-8"))
    runs = folder.root.parent
    with serving(tracking_uri(None, runs), runs / "mlartifacts", choose_port(None)) as server:
        links = find_links(server.url, plan.name, [arm.name for arm in plan.arms])
        with mlflow_page.browser_page() as page:
            if arms:
                mlflow_page.open_arms(page, links.arms, [arm.name for arm in plan.arms])
                mlflow_page.take_arms(page, out, len(plan.arms))
                return
            page.goto(links.comparison)
            mlflow_page.wait_for_comparison(page)
            mlflow_page.put_away_assistant(page)
            mlflow_page.show_differences_only(page)
            out.parent.mkdir(parents=True, exist_ok=True)
            mlflow_page.take_picture(page, out, metric)


if __name__ == "__main__":
    main()
