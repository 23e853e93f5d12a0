import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.conductor.assigning import apply
from search_spaces.paths import lookup

SETTINGS = {"model": {"halt": {"unit": "token", "threshold": 0.5}, "width": 8}, "train": {"lr": 0.1}}


def test_a_field_is_replaced_and_what_is_beside_it_is_shared():
    changed = apply(SETTINGS, {"model.halt.threshold": 0.9})
    assert changed["model"]["halt"] == {"unit": "token", "threshold": 0.9}
    assert changed["train"] is SETTINGS["train"]


def test_the_original_is_untouched():
    before = {"model": {"halt": {"unit": "token", "threshold": 0.5}, "width": 8}, "train": {"lr": 0.1}}
    apply(SETTINGS, {"model.halt.threshold": 0.9, "model.width": 4, "train.lr": 1.0})
    assert before == SETTINGS


@given(
    st.dictionaries(
        st.sampled_from(["model.halt.unit", "model.width", "train.lr", "train.new"]), st.integers()
    )
)
def test_every_assigned_path_reads_back(assignment):
    changed = apply(SETTINGS, assignment)
    assert {path: lookup(changed, path) for path in assignment} == assignment


@pytest.mark.parametrize(
    ("path", "parent"),
    [("model.halt.threshold", "model.halt is null"), ("model.chunk.size", "model.chunk is not there")],
)
def test_a_path_through_nothing_is_refused(path, parent):
    with pytest.raises(ValueError, match=f"{path} is nowhere: {parent}"):
        apply({"model": {"halt": None}}, {path: 1})
