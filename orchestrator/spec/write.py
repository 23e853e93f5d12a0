"""A spec as the YAML of a sweep's folder: profile and overrides applied, nothing left to look up."""

from orchestrator.spec import scalars
from orchestrator.spec.types import Spec


def to_yaml(spec: Spec) -> str:
    """What `load_spec` reads back as `spec`."""
    return scalars.dump(spec.content())
