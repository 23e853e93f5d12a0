"""What to run, when, and what came of it: spec, plan, conductor, execution, ledger, tracking, report, CLI."""

__version__ = "0.2.0"
