"""Common metric names imply a goal, minimum or maximum."""

import pytest

from trainables.metrics import usual_goal


@pytest.mark.parametrize(
    "name",
    ["valid/accuracy", "valid/mAP@50", "hits@10", "valid/macro avg/f1-score", "valid/BLEU-4", "top1Accuracy"],
)
def test_metric_name_implies_a_maximum(name: str) -> None:
    assert usual_goal(name) == "max"


@pytest.mark.parametrize(
    "name", ["eval_loss", "valid/MSE", "perplexity", "valid/word error", "WER", "valid/crossEntropyLoss"]
)
def test_metric_name_implies_a_minimum(name: str) -> None:
    assert usual_goal(name) == "min"


@pytest.mark.parametrize(
    "name", ["valid/score", "neg_mean_squared_error", "accuracy_loss", "valid/depth", "точность"]
)
def test_metric_name_implies_no_goal(name: str) -> None:
    assert usual_goal(name) is None
