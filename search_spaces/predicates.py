"""Functions and pydantic models of the user that decide whether settings can be trained."""

import copy
import importlib
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from search_spaces.wording import format_value


class PredicateFailed(Exception):
    """Error for a predicate that cannot be imported, raises an error or returns no truth value."""


def load_predicate(target: str) -> Callable[..., bool]:
    """Return the predicate at `module:name`.

    A pydantic model is a predicate that admits the settings that it validates.

    Raises:
        PredicateFailed: The target cannot be imported, or is neither a function nor a pydantic model.
    """
    module, _, name = target.partition(":")
    if (working_folder := str(Path.cwd())) not in sys.path:
        sys.path.append(working_folder)
    try:
        named_object: Any = importlib.import_module(module)
        for part in name.split("."):
            named_object = getattr(named_object, part)
    except (Exception, SystemExit) as error:  # user code may raise any exception
        raise PredicateFailed(f"{target} cannot be imported: {type(error).__name__}: {error}") from error
    if isinstance(named_object, type) and hasattr(named_object, "model_validate"):
        return _model_predicate(named_object)
    if isinstance(named_object, type) or not callable(named_object):
        raise PredicateFailed(
            f"{target} must be a function of the settings that returns True or False, or a pydantic model, "
            f"got {type(named_object).__name__}"
        )
    predicate: Callable[..., bool] = named_object
    return predicate


def _model_predicate(model: Any) -> Callable[[dict[str, Any]], bool]:
    def accepts(settings: dict[str, Any]) -> bool:
        try:
            model.model_validate(settings)
        except Exception:  # a user's validator may raise any exception
            return False
        return True

    return accepts


def admits_settings(name: str, target: str, settings: Mapping[str, Any], trainable: str = "") -> bool:
    """Return whether the predicate at `target` admits `settings`.

    Args:
        name: Name of the predicate in messages.
        target: Import path of the predicate, `module:name`.
        settings: All settings of a trial.
        trainable: A second argument of the predicate, unless it is empty.

    Raises:
        PredicateFailed: The predicate cannot be imported, raises an error or returns no truth value.
    """
    predicate = load_predicate(target)
    answer: object
    try:
        answer = predicate(copy.deepcopy(dict(settings)), *filter(None, [trainable]))
    except (Exception, SystemExit) as error:
        raise PredicateFailed(
            f"{name} must return True or False, but raised {type(error).__name__}: {error}"
        ) from error
    if type(answer).__name__ in {"bool", "bool_"}:  # Python's, or NumPy's
        return bool(answer)
    raise PredicateFailed(f"{name} must return True or False, got {format_value(answer)}")
