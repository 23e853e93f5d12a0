"""Common metric names imply a goal, minimum or maximum."""

import pytest

from trainables.metrics import usual_goal


@pytest.mark.parametrize(
    ("goal", "names"),
    [
        ("max", "valid/accuracy|valid/mAP@50|hits@10|valid/macro avg/f1-score|valid/BLEU-4|top1Accuracy"),
        ("min", "eval_loss|valid/MSE|perplexity|valid/word error|WER|valid/crossEntropyLoss"),
        (None, "valid/score|neg_mean_squared_error|accuracy_loss|valid/depth|точность"),
    ],
)
def test_usual_goal_of_metric_names(goal: str | None, names: str) -> None:
    assert {name: usual_goal(name) for name in names.split("|")} == dict.fromkeys(names.split("|"), goal)
