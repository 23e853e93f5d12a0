"""Values of a search space, drawn by Optuna."""

import warnings

import optuna

from search_spaces.dimensions import Choice, Domain, Fixed, Float, Int, Powers, Value, contains, greatest


def suggest(trial: optuna.Trial, name: str, domain: Domain) -> Value:
    """A value of `domain`, as the trial's sampler draws it.

    Raises ValueError for one that is outside: Optuna believes a sampler, and what is enqueued.
    """
    value = _suggested(trial, name, domain)
    if isinstance(domain, Float | Int) and not contains(domain, value):
        steps = "" if domain.step in (None, 1) else f" in steps of {domain.step}"
        raise ValueError(f"a sampler must draw {name} from {domain.low} to {domain.high}{steps}, got {value}")
    return value


def _suggested(trial: optuna.Trial, name: str, domain: Domain) -> Value:
    match domain:
        case Fixed(value):
            return value
        case Choice(values):
            # By position: Optuna takes True for 1, and would warn of choices it cannot store.
            return values[trial.suggest_categorical(name, range(len(values)))]
        case Powers():
            return domain.values[trial.suggest_int(name, 0, len(domain.values) - 1)]
        case Float(low, high, log, step):
            with warnings.catch_warnings():
                # Of a step that leaves a rest: the last value is then below the high end, as it should be.
                warnings.filterwarnings("ignore", message=".*is not divisible by `step`")
                return trial.suggest_float(name, low, high, log=log, step=step)
        case _:
            last = int(greatest(domain))
            return trial.suggest_int(name, domain.low, last, log=domain.log, step=domain.step)
