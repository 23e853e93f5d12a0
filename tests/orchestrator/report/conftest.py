"""Pages without pictures, for tests that read what else is on them: most of a page's time is theirs."""

import pytest

from tests.support.numerics.blank_figures import draw_blank_figures


@pytest.fixture
def undrawn(monkeypatch: pytest.MonkeyPatch) -> None:
    """Figures have their size and their label, and nothing in them."""
    draw_blank_figures(monkeypatch.setattr)
