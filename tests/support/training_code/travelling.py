"""Code that is not installed: a trainable and a model that import modules from the same folder."""

from pathlib import Path

MODEL = "travelling_kit.model"
"""A model equal to the universal Transformer."""
TRAINABLE = "travelling_kit.training:train"
"""A function that saves and reports every step."""
_FILES = {
    "travelling_kit/__init__.py": "",
    "travelling_kit/model.py": """
from travelling_kit.helper import same
from trainables.models import universal

class Config(universal.Config):
    pass

class Encoder(universal.Encoder):
    def __init__(self, config):
        super().__init__(same(config))
""",
    "travelling_kit/training.py": """
import time
from travelling_kit.helper import same

def train(settings, trial):
    saved, first = trial.folder / "step.txt", 1
    if saved.exists():
        first = int(saved.read_text()) + 1
    for step in range(first, settings["steps"] + 1):
        time.sleep(settings["pause"])
        saved.write_text(str(step))
        trial.report(step, {"valid/score": same(settings["lr"]) * step})
""",
    "travelling_kit/helper.py": "def same(value):\n    from travels import kept\n    return kept(value)\n",
    "travels.py": "from travelling.far import kept as kept\n",
    "travelling/far.py": "def kept(value):\n    return value\n",
    "travelling/behind.py": "raise AssertionError('nothing imports it')\n",
}


def write_code(folder: Path) -> None:
    """Write a package, a module, and a module in a folder without `__init__.py`."""
    for name, text in _FILES.items():
        file = folder / name
        file.parent.mkdir(exist_ok=True)
        file.write_text(text)
