"""Plans as one `haltsweep check` of many specs makes them: what was built for one need not be built again.

That this changes no plan is tested in tests/orchestrator/plan/test_planner.py. A test that breaks models or
what measures them, and one that compares with a plan of its own, calls `orchestrator.plan.planner.plan`.
"""

from functools import cache
from typing import Any

from orchestrator.plan import planner
from orchestrator.plan.ablation_check.probe import Probe
from orchestrator.plan.types import Plan
from orchestrator.spec.load import SpecFile
from orchestrator.spec.types import Spec


@cache
def _probe() -> Probe:
    """One for all tests of a process."""
    return Probe()


def plan(source: Spec | SpecFile, **more: Any) -> Plan:
    """As `orchestrator.plan.planner.plan`, without building any system twice."""
    return planner.plan(source, probe=_probe(), **more)
