"""Fixtures for tests of pages."""

import pytest

from tests.support.numerics.blank_figures import draw_blank_figures


@pytest.fixture
def undrawn(monkeypatch: pytest.MonkeyPatch) -> None:
    """Draw empty figures with size and label, because figures take most of the time of a page."""
    draw_blank_figures(monkeypatch.setattr)
