"""What haltsweep promises of models and tasks, kept by ours: a line each."""

from trainables.testing import model_contract, task_contract

TestGRU = model_contract("gru_kit.gru", arms={"deep": {"layers": 2}})
TestMajority = task_contract("gru_kit.majority", solve=lambda text: int(2 * text.count("b") > len(text)))
