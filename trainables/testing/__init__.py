"""Contract tests for models, tasks and training code of users: one line in a test file.

    from trainables.testing import model_contract, task_contract, trainable_contract

    TestGRU = model_contract("my_package.gru")
    TestParity = task_contract("my_package.parity", {"examples": 100})
    TestTrain = trainable_contract("my_package.train:train", {"lr": 0.1, "epochs": 4})

Each returns a class of pytest tests. Alternatively derive a class from `ModelContract`, `TaskContract` or
`TrainableContract` and set its attributes:

    class TestGRU(ModelContract):
        model = "my_package.gru"
        settings = {"layers": 2}

The tests need pytest (`pip install pytest`); importing this package does not.
"""

from trainables.testing.model import ModelContract as ModelContract
from trainables.testing.model import model_contract as model_contract
from trainables.testing.task import TaskContract as TaskContract
from trainables.testing.task import task_contract as task_contract
from trainables.testing.trainable import TrainableContract as TrainableContract
from trainables.testing.trainable import trainable_contract as trainable_contract
