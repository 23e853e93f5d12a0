"""Plan as one `haltsweep check` of many specs does, which builds each model only once.

tests/orchestrator/plan/test_planner.py tests that sharing changes no plan. A test that patches models or
their measurement, or compares with an independent plan, calls `orchestrator.plan.planner.plan`.
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
    """Return the probe that all tests of a process share."""
    return Probe()


def plan(source: Spec | SpecFile, **options: Any) -> Plan:
    """Call `orchestrator.plan.planner.plan` without building any model twice."""
    return planner.plan(source, probe=_probe(), **options)
