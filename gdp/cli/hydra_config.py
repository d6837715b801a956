"""Composition of the configurations of `train.py` and `finetune.py` from the bundled `conf/`, one sentence for a mistake, and nothing executed from a configuration.

A value of `workload=` or `cluster=` that is no file of that group is taken for what `gdp place` takes there: a name of the catalog, `FILE.py:FUNCTION`, `local`, a YAML file.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from hydra import compose, initialize_config_dir
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.errors import HydraException
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import MissingMandatoryValue, OmegaConfBaseException

from gdp.bundled import bundled
from gdp.cli.fill import did_you_mean
from gdp.cli.quoted import quoted
from gdp.errors import InputError

_NO_WORKLOAD = "no workload is named; say workload=NAME, a workload of the catalog, FILE.py:FUNCTION, or a graph file (.parquet)"


def translate(name: str, arguments: Sequence[str]) -> list[str]:
    """The arguments for `conf/<name>.yaml` with free values of `workload=` and `cluster=` in the form that the configuration files hold them."""
    translated = []
    for argument in arguments:
        key, _, value = argument.partition("=")
        if name == "finetune" and argument == "workload=":
            raise InputError(_NO_WORKLOAD)
        if name == "finetune" and key == "workload" and "=" in argument and value not in options("workload"):
            translated += ["workload=named", f"workload.name={quoted(value)}"]
        elif key == "cluster" and value and (value == "local" or value.endswith((".yaml", ".yml"))):
            translated.append(f"cluster_source={quoted(value)}")
        else:
            translated.append(argument)
    return translated


def check_overrides(name: str, arguments: Sequence[str]) -> None:
    """Raises `InputError`, with the nearest name, when an override cannot be read, or names a key, a group or an option that is not there."""
    for argument in arguments:
        check_grammar(argument)
    groups = [argument for argument in arguments if is_group(_key(argument)) and not argument.startswith("~")]
    for argument in groups:
        check_option(_key(argument), argument.partition("=")[2])
    known = set(flat_keys(_plain(composed(name, groups)))) | {path.name for path in bundled("conf").iterdir() if path.is_dir()}
    for argument in arguments:
        key = _key(argument)
        if argument.startswith("+") or key.startswith("hydra.") or key in known:
            continue
        raise InputError(f"the configuration has no key {key!r}; {did_you_mean(key, known)}")
    composed(name, arguments)


def composed(name: str, overrides: Sequence[str]) -> DictConfig:
    """The configuration `name` with overrides; Hydra's own complaints become an `InputError`."""
    try:
        with initialize_config_dir(config_dir=str(bundled("conf")), version_base="1.3"):
            return compose(config_name=name, overrides=list(overrides))
    except (HydraException, OmegaConfBaseException, ValueError) as error:
        raise InputError(_first_line(error)) from error


def resolved(config: DictConfig) -> dict[str, Any]:
    """The configuration as plain Python values, interpolations done. Raises `InputError` where a required value was not given."""
    try:
        plain = OmegaConf.to_container(config, resolve=True, throw_on_missing=True)
    except MissingMandatoryValue as error:
        if error.full_key == "workload.name":
            raise InputError(_NO_WORKLOAD) from error
        raise InputError(f"{error.full_key} has no value; give it on the command line as {error.full_key}=VALUE") from error
    except OmegaConfBaseException as error:
        raise InputError(f"{_first_line(error)}; mend the value on the command line") from error
    assert isinstance(plain, dict)
    return {str(key): value for key, value in plain.items()}


def check_grammar(argument: str) -> None:
    """Raises `InputError` when an argument is no override of one value."""
    if "=" not in argument and not argument.startswith("~"):
        raise InputError(f"the argument {argument!r} is no override; write key=value, as in seed=1")
    try:
        override = OverridesParser.create().parse_override(argument)
    except HydraException as error:
        raise InputError(
            f"the argument {argument!r} cannot be read ({_first_line(error)}); quote a value with special characters: key=\"'a, b'\""
        ) from error
    if override.is_sweep_override():
        raise InputError(
            f"the argument {argument!r} gives several values, which is for several runs: add -m for a run of each, or quote it: key=\"'a,b'\""
        )


def check_option(group: str, value: str) -> None:
    """Raises `InputError`, with the nearest name, when a configuration group has no such option."""
    known = options(group)
    forms = ", which may be a preset, `local` or a YAML file (.yaml)" if group == "cluster" else ""
    if value in ("", "null"):
        raise InputError(f"{group}={value} names nothing{forms}; leave it out for the default; known are {', '.join(known)}")
    if value not in known:
        raise InputError(f"there is no {group} {value!r}{forms}; {did_you_mean(value, known)}")


def _plain(config: DictConfig) -> dict[Any, Any]:
    plain = OmegaConf.to_container(config, resolve=False)
    assert isinstance(plain, dict)
    return plain


def options(group: str) -> list[str]:
    """The files of a configuration group."""
    return sorted(path.stem for path in (bundled("conf") / group).glob("*.yaml"))


def is_group(key: str) -> bool:
    """Whether a key is that of a configuration group."""
    return bool(key) and Path(key).name == key and (bundled("conf") / key).is_dir()


def _key(argument: str) -> str:
    return argument.partition("=")[0].lstrip("+~")


def _first_line(error: Exception) -> str:
    """Of several lines of a foreign message, the one that says what is wrong."""
    lines = str(error).strip().splitlines()
    return lines[0].strip() if lines else type(error).__name__


def flat_keys(values: Mapping[Any, Any], prefix: str = "") -> list[str]:
    """The keys at every depth, with dots."""
    names = []
    for key, value in values.items():
        names.append(f"{prefix}{key}")
        if isinstance(value, Mapping):
            names += flat_keys(value, f"{prefix}{key}.")
    return names
