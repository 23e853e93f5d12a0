"""Processes of their own that need not import again what takes longer to import than to run."""

import multiprocessing

PRELOADED = [
    "pytest",
    "optuna",
    "torch",
    "scipy.optimize",
    "sqlalchemy.dialects.sqlite",
    "matplotlib.backends.backend_agg",
    "orchestrator.conductor.arm_search",
    "orchestrator.plan.planner",
    "orchestrator.report.write",
    "orchestrator.cli.main",
    "tests.faults.chaos",
]
"""Modules that run nothing when they are imported: what is forked is as if it had imported them itself."""

forks = multiprocessing.get_context("forkserver")
forks.set_forkserver_preload(PRELOADED)
