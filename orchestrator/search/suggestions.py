"""Draw values of a search space with Optuna."""

import warnings

import optuna

from search_spaces.dimensions import (
    Choice,
    Domain,
    Fixed,
    Float,
    Int,
    Powers,
    Value,
    are_equal,
    contains,
    max_value,
)


def suggest(trial: optuna.Trial, name: str, domain: Domain) -> Value:
    """Draw a value of `domain` with the trial's sampler.

    Raises:
        ValueError: For a value outside of `domain`, since Optuna checks neither samplers nor enqueued values.
    """
    value = _suggest_value(trial, name, domain)
    if isinstance(domain, Float | Int) and not contains(domain, value):
        steps = "" if domain.step in (None, 1) else f" in steps of {domain.step}"
        raise ValueError(f"a sampler must draw {name} from {domain.low} to {domain.high}{steps}, got {value}")
    return value


def stored_value(domain: Domain, value: Value) -> Value:
    """Return `value` as Optuna stores it: choices and powers by position."""
    if isinstance(domain, Choice | Powers):
        return next(place for place, entry in enumerate(domain.values) if are_equal(entry, value))
    return value


def _suggest_value(trial: optuna.Trial, name: str, domain: Domain) -> Value:
    match domain:
        case Fixed(value):
            return value
        case Choice(values):
            # Choices are drawn by index, since Optuna confuses True with 1 and warns about choices that it
            # cannot store.
            return values[trial.suggest_categorical(name, range(len(values)))]
        case Powers():
            return domain.values[trial.suggest_int(name, 0, len(domain.values) - 1)]
        case Float(low, high, log, step):
            with warnings.catch_warnings():
                # If the step does not divide the range, the largest value is below the high end.
                warnings.filterwarnings("ignore", message=".*is not divisible by `step`")
                return trial.suggest_float(name, low, high, log=log, step=step)
        case _:
            last = int(max_value(domain))
            return trial.suggest_int(name, domain.low, last, log=domain.log, step=domain.step)
