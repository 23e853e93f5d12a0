"""While a library loads nobody looks for garbage, and afterwards all is as before."""

import gc

import pytest

from orchestrator.loading import uncollected


def test_garbage_is_looked_for_again_however_it_ends() -> None:
    assert gc.isenabled()
    with uncollected():
        assert not gc.isenabled()
        with uncollected():
            assert not gc.isenabled()
        assert not gc.isenabled()
    assert gc.isenabled()
    with pytest.raises(ImportError), uncollected():
        raise ImportError
    assert gc.isenabled()


def test_who_wants_none_looked_for_is_left_alone() -> None:
    gc.disable()
    try:
        with uncollected():
            pass
        assert not gc.isenabled()
    finally:
        gc.enable()
