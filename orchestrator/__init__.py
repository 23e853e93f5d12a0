"""Plan, run, record and report sweeps: spec, planner, conductor, execution, ledger, tracking, report, CLI."""

__version__ = "0.2.0"
