"""Contracts of haltsweep for the model and the task of this package."""

from trainables.testing import model_contract, task_contract

TestGRU = model_contract("gru_kit.gru", arms={"deep": {"layers": 2}})
TestMajority = task_contract("gru_kit.majority", solve=lambda text: int(2 * text.count("b") > len(text)))
