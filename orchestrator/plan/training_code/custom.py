"""Planner interface of a custom trainable, limited to the functions that its module provides."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pydantic import ValidationError

from orchestrator.errors import FaultCode, InputError
from orchestrator.files.redact import escape_unstorable, escape_unstorable_values
from orchestrator.plan.ablation_check.custom_models import Fingerprint, ModelBuilder, compare_fingerprints
from orchestrator.plan.answer import check_answer
from orchestrator.plan.arms import CheckedArm, Progress, baseline_keys, resolve_arms
from orchestrator.plan.faults import Faults, Keys
from orchestrator.plan.published.published_checks import check_published
from orchestrator.plan.space_check.draws import SettingsCheck
from orchestrator.plan.space_check.objectives import against_declared
from orchestrator.plan.space_check.spaces import assign_params, sibling_fields
from orchestrator.plan.training_code.settings import SettingFault, setting_faults
from orchestrator.plan.types import ArmCheck, ArmEstimate
from orchestrator.spec import scalars
from orchestrator.spec.types import Search, Spec
from search_spaces.dimensions import Assignment, Choice, Fixed, Predicate, Space, equality_key
from search_spaces.paths import MISSING, leaves, lookup, overlap, with_value
from search_spaces.wording import format_value, hint
from trainables.custom.extensions import describe_error
from trainables.custom.outside import Trainable, dropped_fields
from trainables.metrics import Metric

if TYPE_CHECKING:
    from orchestrator.search.samplers import ComponentChoice  # this import loads Optuna


@dataclass(frozen=True, slots=True)
class CustomSettings:
    """Settings that the custom trainable accepts."""

    settings: Mapping[str, Any]


Arm = CheckedArm[CustomSettings]
TRUTH_WORDS = frozenset({"true", "false", "yes", "no", "on", "off"})
"""Texts that are meant as booleans if another value of the field is a boolean.

In YAML 1.2 the last four are texts; `true` and `false` are texts only in quotes.
"""
NUMBER_WORDS = frozenset({"none", "null", "nan", "inf"})
"""Texts that are meant as a value of a field with numbers."""


class CustomTrainable:
    """The custom trainable of a spec; its methods implement `TrainableForPlan`."""

    def __init__(self, trainable: Trainable, progress: Progress = lambda _: None) -> None:
        self._trainable = trainable
        self._progress = progress
        self._builder: ModelBuilder | None = None
        self._fingerprints: dict[str, Fingerprint] = {}
        self._second_fingerprints: dict[str, Fingerprint] = {}
        self.path: str | None = trainable.path
        self.settings_check = SettingsCheck(
            self._check_settings, lambda _: None, self._settings_with_draw, self._config_predicate()
        )

    def _config_predicate(self) -> Predicate | None:
        """Return a constraint: the Config accepts the drawn values; None if there is no Config."""
        if self._trainable.config is None:
            return None
        return Predicate("trainables.custom.outside:config_admits", self._trainable.path)

    def resolve(self, spec: Spec, faults: Faults, progress: Progress) -> list[Arm]:
        """Return the valid arms, the baseline first."""
        return resolve_arms(self._check_settings, spec, faults, progress)

    def metrics(self, arms: Sequence[Arm]) -> tuple[Metric, ...]:  # noqa: ARG002 - the same for all
        """Return the declared metrics, which are the same for all arms."""
        return self._trainable.metrics

    def check(
        self,
        spec: Spec,
        arms: Sequence[Arm],
        stopper: "ComponentChoice | None",  # noqa: ARG002
        faults: Faults,
    ) -> None:
        """Add faults of the spec and its arms, except faults of the search space.

        The stopper is not checked, since the steps of reports are unknown.
        """
        self._check_baseline(spec, arms[0], faults)
        for arm in arms:
            self._check_fields(arm, arms[0].system.settings, faults)
            self._check_unchanged_values(arm, faults)
        self._check_value_kinds(spec, arms, faults)
        if spec.resources.gpus > 1 and not self._trainable.several_gpus:
            message = (
                f"must be at most 1 for {self.path}, which does not declare that a trial uses several GPUs, "
                f"got {spec.resources.gpus:g}: set gpus: 1, or write "
                "haltsweep = {'several_gpus': True} in its module if a trial uses all"
            )
            faults.add(message, "resources", "gpus", code=FaultCode.CONFLICTING_FIELDS)
        if spec.confirm is not None and spec.confirm.resample_data:
            message = (
                f"must be false for {self.path}, got true: haltsweep does not control the seed of its data. "
                "Delete resample_data, and draw the data by trial.seed_of('data') in the training code"
            )
            faults.add(message, "confirm", "resample_data", code=FaultCode.CONFLICTING_FIELDS)
        check_published(spec, arms, (), self.metrics(arms), faults)
        self._check_posthoc(spec, arms, faults)
        check_answer(spec, self.metrics(arms), (), faults)

    def _check_baseline(self, spec: Spec, baseline: Arm, faults: Faults) -> None:
        """Add faults for fields of the baseline that the training code does not have."""
        if self._trainable.config is not None:  # a Config may silently drop unknown fields
            baseline_result = (
                self._check_settings(spec.settings) if baseline.request.cell else baseline.system
            )
            plain_settings = (
                baseline_result.settings if isinstance(baseline_result, CustomSettings) else spec.settings
            )
            for path in dropped_fields(spec.settings, plain_settings, ""):
                self._add_missing_field_fault(path, plain_settings, baseline_keys(path), faults)
            return
        for path in baseline.request.cell:
            if lookup(spec.settings, path) is MISSING:
                keys = baseline.request.keys(path)
                self._add_missing_field_fault(path, spec.settings, keys, faults)
        added_fields = faults.added_fields  # without a Config, the spec file defines the fields
        fields = [field for field, _ in leaves(baseline.system.settings)]
        written_fields = [field for field in fields if not any(overlap(field, path) for path in added_fields)]
        for path in added_fields:
            message = f"the baseline has no field {path}. {hint(path, sibling_fields(path, written_fields))}"
            faults.add(message, *baseline_keys(path), code=FaultCode.UNKNOWN_FIELD)

    def _check_fields(self, arm: Arm, known_settings: Mapping[str, Any], faults: Faults) -> None:
        """Add faults for fields that the arm sets and the training code does not have."""
        fields = known_settings if self._trainable.config is None else arm.system.settings
        for set_path, value in {**arm.request.cell, **arm.request.changes}.items():
            for path in self._unknown_paths(set_path, value, fields, known_settings):
                self._add_missing_field_fault(path, fields, arm.request.keys(set_path), faults)

    def reason_not_searchable(self, path: str, arms: Sequence[Arm]) -> str | None:  # noqa: ARG002 - unknown
        """Return None, since it is unknown which fields change measurements."""
        return None

    def check_arm(self, arm: Arm, reference: Arm | None, faults: Faults) -> ArmCheck | None:
        """Return the result of the ablation check; None without `build`, or if the model cannot be built."""
        if self._trainable.build is None:
            return None
        try:
            compared_with = arm if reference is None else reference
            fingerprint, reference_fingerprint = (
                self._fingerprint_of(arm),
                self._fingerprint_of(compared_with),
            )
            repeated_fingerprint = self._second_fingerprint(compared_with)
        except ValueError as error:
            place = ("baseline",) if arm.request.is_baseline else ("arms", arm.request.label)
            message = f"{arm.name} cannot be built: {error}"
            faults.add(message, *place, about=("built", str(error)), code=FaultCode.ARM_CANNOT_BE_TRAINED)
            return None
        return compare_fingerprints(
            arm.name,
            reference_fingerprint,
            fingerprint,
            repeated_fingerprint,
            has_reference=reference is not None,
        )

    def check_equal_arms(self, arms: Sequence[Arm], faults: Faults) -> None:
        """Add no fault, since training may differ between arms with the same model."""

    def check_objectives(self, search: Search, arm: Arm, faults: Faults) -> None:
        """Add faults for objectives that are declared as constant or with another goal."""
        for place, objective in enumerate(search.objectives) if arm.request.is_baseline else ():
            if fault := against_declared(objective, self._trainable.metrics):
                faults.add(fault[1], "search", "objectives", place, fault[0])

    def check_space(self, arm: Arm, space: Space, search: Search, faults: Faults) -> None:  # noqa: ARG002
        """Without a Config, add a fault for each dimension of texts whose field is a boolean or number."""
        if self._trainable.config is not None:
            return
        for dimension in space.dimensions:
            match dimension.domain:
                case Choice(values):
                    drawn_values = values
                case Fixed(value):
                    drawn_values = (value,)
                case _:
                    continue
            for value in drawn_values:
                if fault := _misread_text_fault(lookup(arm.system.settings, dimension.path), value):
                    faults.add(f"{dimension.path} {fault}", "search", about=("kind", dimension.path))

    def check_metrics_vary(self, spec: Spec, spaces: Sequence[tuple[Arm, Space]], faults: Faults) -> None:
        """Add no fault, since it is unknown which metrics can vary."""

    def estimate(self, arm: Arm, trials: Mapping[str, int] | None, *, calibrate: bool) -> ArmEstimate:
        """Return the numbers of trials; raise InputError for a calibration, which is not supported."""
        if calibrate:
            raise InputError(
                f"only steps of built-in models and tasks can be timed, got the trainable {self.path}; "
                "omit --calibrate"
            )
        return ArmEstimate(arm.name, dict(sorted((trials or {}).items())))

    def _check_settings(self, raw: Mapping[str, Any]) -> CustomSettings | list[SettingFault]:
        config = self._trainable.config
        if config is None:
            return CustomSettings(dict(raw))
        self._progress(f"running config of {self.path}")
        try:
            values = config.model_validate(dict(raw)).model_dump(mode="json")
        except ValidationError as error:
            return setting_faults(config, (), error)
        except (Exception, SystemExit) as error:  # a user's validator may raise any exception
            return [SettingFault("", f"{self.path} refuses these settings: {describe_error(error)}")]
        if faults := list(_unstorable_values(values, f"config of {self.path}")):
            return faults
        return CustomSettings(values)

    def _settings_with_draw(
        self, settings: Mapping[str, Any], draw: Assignment
    ) -> CustomSettings | list[SettingFault] | None:
        """Return the settings combined with a draw, or their faults; None if a path does not exist.

        A trial receives the settings as drawn, while an arm's settings are those that the Config returns. So
        a Config must not change drawn settings.
        """
        if (settings_of_draw := assign_params(settings, draw)) is None:
            return None
        checked_settings = self._check_settings(settings_of_draw)
        if isinstance(checked_settings, list):
            return checked_settings
        changed = list(self._changed_draws(settings_of_draw, checked_settings.settings, draw))
        return changed or checked_settings

    def _changed_draws(
        self, settings: Mapping[str, Any], parsed: Mapping[str, Any], draw: Assignment
    ) -> Iterator[SettingFault]:
        """Yield a fault for each drawn field to which the Config gives another value."""
        config = f"config of {self.path}"
        for path in _differing_paths(settings, parsed):
            drawn_value, config_value = lookup(settings, path), lookup(parsed, path)
            if path in draw and config_value is not MISSING:
                message = (
                    f"must not be changed by the Config, but {config} makes it {format_value(config_value)}"
                )
                yield SettingFault(path, f"{message}, got {format_value(drawn_value)}")
            elif MISSING not in (drawn_value, config_value):
                message = (
                    f"{config} must not change fields that the search does not draw, but changes {path} from "
                    f"{format_value(drawn_value)} to {format_value(config_value)}. Trials use the drawn "
                    f"settings: remove {path} from the Config, and compute it in the training code"
                )
                yield SettingFault(path, message)

    def _check_unchanged_values(self, arm: Arm, faults: Faults) -> None:
        """Add faults for numbers that the Config changes, since the spec would state an untrained value."""
        for path, field, written_value in _written_fields(arm):
            kept_value = lookup(arm.system.settings, field)
            if _is_changed_number(written_value, kept_value):
                message = (
                    f"must not be changed by the Config, but config of {self.path} makes {field} "
                    f"{format_value(kept_value)}, got {format_value(written_value)}: write "
                    f"{format_value(kept_value)} if you want that value"
                )
                faults.add(message, *arm.request.keys(path), about=("kept", field, written_value))

    def _add_missing_field_fault(
        self, path: str, known: Mapping[str, Any], keys: Keys, faults: Faults
    ) -> None:
        names = sibling_fields(path, [field for field, _ in leaves(known)])
        message = f"{self.path} has no field {path}. {hint(path, names)}"
        if self._trainable.config is None:  # only the baseline defines the fields
            message = (
                f"the baseline has no field {path}. {hint(path, names)}. If the training code has this "
                "field, add its default to the baseline"
            )
        faults.add(message, *keys, about=("no field", path, *keys), code=FaultCode.UNKNOWN_FIELD)

    def _unknown_paths(
        self, set_path: str, value: Any, fields: Mapping[str, Any], defaults: Mapping[str, Any]
    ) -> Iterator[str]:
        """Yield paths that `fields` does not contain, among those that the arm sets at or below `set_path`.

        With a Config, `fields` are those that it retained for the arm. Without one, they are the fields of
        the baseline. A mapping that replaces a value other than a mapping may have any fields.
        """
        kept_fields = lookup(fields, set_path)
        if kept_fields is MISSING:
            yield set_path
        elif self._trainable.config is not None or isinstance(lookup(defaults, set_path), Mapping):
            yield from dropped_fields(value, kept_fields, set_path)

    def _check_value_kinds(self, spec: Spec, arms: Sequence[Arm], faults: Faults) -> None:
        """Add faults for texts, such as `no`, in place of booleans and numbers.

        A Config refuses them itself.
        """
        if self._trainable.config is not None:
            return
        for arm in arms:
            for path, field, value in _written_fields(arm):
                if fault := _misread_text_fault(lookup(spec.settings, field), value):
                    message = fault if field == path else f"{field} {fault}"
                    faults.add(message, *arm.request.keys(path), about=("kind", field, value))
        for path, values in spec.posthoc.items():
            for place, value in enumerate(values):
                if fault := _misread_text_fault(lookup(spec.settings, path), value):
                    faults.add(fault, "posthoc", path, place)

    def _fingerprint_of(self, arm: Arm) -> Fingerprint:
        if arm.name not in self._fingerprints:
            self._fingerprints[arm.name] = self._build_fingerprint(arm)
        return self._fingerprints[arm.name]

    def _build_fingerprint(self, arm: Arm) -> Fingerprint:
        def show(phase: str) -> None:
            self._progress(f"running {phase} of {self.path} for {arm.name}")

        self._builder = self._builder or ModelBuilder(self._trainable)
        return self._builder.fingerprint(arm.system.settings, show)

    def _second_fingerprint(self, arm: Arm) -> Fingerprint:
        """Return the fingerprint of `arm` built a second time; raise ValueError if it cannot be built."""
        if arm.name not in self._second_fingerprints:
            self._second_fingerprints[arm.name] = self._build_fingerprint(arm)
        return self._second_fingerprints[arm.name]

    def _check_posthoc(self, spec: Spec, arms: Sequence[Arm], faults: Faults) -> None:
        if spec.posthoc and self._trainable.evaluate is None:
            message = (
                "needs evaluate(settings, folder), which returns the metrics of a trained model: name it "
                f"in the module of {self.path} as haltsweep = {{'evaluate': evaluate}}, or leave posthoc out"
            )
            faults.add(message, "posthoc", code=FaultCode.CUSTOM_CODE)
            return
        base = arms[0].system.settings
        for path, values in spec.posthoc.items():
            if (arm_value := lookup(base, path)) is MISSING:
                field_names = [field for field, _ in leaves(base)]
                message = f"the baseline has no field {path}. {hint(path, field_names)}"
                faults.add(message, "posthoc", path, code=FaultCode.UNKNOWN_FIELD)
                continue
            for place, value in enumerate(values):
                checked_settings = self._check_settings(with_value(base, path, value))
                if isinstance(checked_settings, list):
                    reasons = "; ".join(problem.message for problem in checked_settings)
                    message = f"the baseline cannot have {path} = {format_value(value)}: {reasons}"
                    faults.add(message, "posthoc", path, place)
                elif equality_key(arm_value) == equality_key(value):
                    message = (
                        f"must differ from the trained value: the baseline already has {format_value(value)}"
                    )
                    faults.add(message, "posthoc", path, place, code=FaultCode.RE_EVALUATION_HAS_NO_EFFECT)


def _differing_paths(first: Mapping[str, Any], second: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the paths of the fields in which settings differ."""
    fields = dict.fromkeys(path for settings in (first, second) for path, _ in leaves(settings))
    values = ((path, lookup(first, path), lookup(second, path)) for path in fields)
    return tuple(path for path, old, new in values if equality_key(old) != equality_key(new))


def _unstorable_values(settings: Any, config: str) -> Iterator[SettingFault]:
    """Yield faults for values that `config` returned and that cannot be stored as JSON."""
    if not isinstance(settings, Mapping):
        yield SettingFault("", f"{config} must give a mapping of fields, got a {type(settings).__name__}")
        return
    for path, value in leaves(settings):
        try:
            json.dumps(value, allow_nan=False)
        except ValueError:
            reason = f"settings are stored as JSON, and {config} makes it {format_value(value)}"
            yield SettingFault(path, f"must be finite, for {reason}; use null where there is no bound")
            continue
        if escape_unstorable_values(value) != value:
            text = escape_unstorable(format_value(value))
            yield SettingFault(path, f"must be text that can be stored, and {config} makes it {text}")


def _misread_text_fault(first: Any, second: Any) -> str | None:
    """Return the problem if one of two values of a field is text that looks like a boolean or number."""
    value, text = (second, first) if isinstance(first, str) else (first, second)
    if not isinstance(text, str):
        return None
    if isinstance(value, bool) and text.lower() in TRUTH_WORDS:
        return (
            f"must be true or false in all arms, got {format_value(value)} and the text {text!r}, which "
            "Python takes for true: write true or false, without quotes"
        )
    reads_as_number = _is_number(text) or text.lower() in NUMBER_WORDS
    if isinstance(value, int | float) and not isinstance(value, bool) and reads_as_number:
        return (
            f"must be a number in all arms, got {format_value(value)} and the text {text!r}: write a number "
            "or null, without quotes"
        )
    return None


def _written_fields(arm: Arm) -> Iterator[tuple[str, str, Any]]:
    """Yield each field that `arm` sets: its path in the spec, the path of the field itself, and the value."""
    for path, value in {**arm.request.cell, **arm.request.changes}.items():
        fields = leaves({path: value}) if isinstance(value, Mapping) else [(path, value)]
        yield from ((path, field, written_value) for field, written_value in fields)


def _is_changed_number(first: Any, second: Any) -> bool:
    both = (first, second)
    return first != second and all(isinstance(n, int | float) and not isinstance(n, bool) for n in both)


def _is_number(text: str) -> bool:
    try:
        number = scalars.read(text)
    except ValueError:
        return False
    return isinstance(number, int | float) and not isinstance(number, bool)
