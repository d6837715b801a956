"""Hydra behind `train.py` and `finetune.py`: composition from the bundled `conf/`, one sentence for a mistake, and nothing executed from a configuration.

A value of `workload=` or `cluster=` that is no file of that group is taken for what `gdp place` takes there: a name of the catalog, `FILE.py:FUNCTION`, `local`, a YAML file.
"""

import os
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import hydra
from hydra import compose, initialize_config_dir
from hydra.errors import HydraException
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from gdp.bundled import bundled
from gdp.cli.fill import did_you_mean
from gdp.errors import InputError

Run = Callable[[dict[str, Any]], int]
"""What is run with the resolved configuration; it returns the exit code."""


def launch(name: str, run: Run, arguments: Sequence[str]) -> int:
    """Composes `conf/<name>.yaml` with the command line's overrides, runs, and returns the exit code: 2 for a user's mistake, told in one sentence."""
    full_error = os.environ.get("HYDRA_FULL_ERROR") == "1"
    try:
        arguments = translate(arguments)
        if not any(argument.startswith("-") for argument in arguments):
            check_overrides(name, arguments)
        code = [0]

        def task(config: DictConfig) -> None:
            try:
                code[0] = run(resolved(config))
            except InputError as error:
                if full_error:
                    raise
                code[0] = _complain(name, error)

        sys.argv[1:] = arguments
        hydra.main(version_base="1.3", config_path=str(bundled("conf")), config_name=name)(task)()
        return code[0]
    except InputError as error:
        if full_error:
            raise
        return _complain(name, error)


def translate(arguments: Sequence[str]) -> list[str]:
    """The arguments with free values of `workload=` and `cluster=` in the form that the configuration files hold them."""
    translated = []
    for argument in arguments:
        key, _, value = argument.partition("=")
        if key == "workload" and value and value not in options("workload"):
            translated += ["workload=named", f"workload.name={_quoted(value)}"]
        elif key == "cluster" and value and (value == "local" or value.endswith((".yaml", ".yml"))):
            translated.append(f"cluster_source={_quoted(value)}")
        else:
            translated.append(argument)
    return translated


def check_overrides(name: str, arguments: Sequence[str]) -> None:
    """Raises `InputError`, with the nearest name, when an override names a key, a group or an option that is not there."""
    groups = [argument for argument in arguments if _is_group(_key(argument))]
    for argument in groups:
        value = argument.partition("=")[2]
        if value not in ("", "null") and value not in options(_key(argument)):
            raise InputError(f"there is no {_key(argument)} {value!r}; {did_you_mean(value, options(_key(argument)))}")
    known = set(_flat(_plain(composed(name, groups)))) | {path.name for path in bundled("conf").iterdir() if path.is_dir()}
    for argument in arguments:
        key = _key(argument)
        if "=" not in argument and not argument.startswith("~"):
            raise InputError(f"the argument {argument!r} is no override; write key=value, as in seed=1")
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
        raise InputError(" ".join(str(error).split())) from error


def resolved(config: DictConfig) -> dict[str, Any]:
    """The configuration as plain Python values, interpolations done. Raises `InputError` where a required value was not given."""
    try:
        plain = OmegaConf.to_container(config, resolve=True, throw_on_missing=True)
    except OmegaConfBaseException as error:
        raise InputError(f"{' '.join(str(error).split())}; give it on the command line as key=value") from error
    assert isinstance(plain, dict)
    return {str(key): value for key, value in plain.items()}


def _plain(config: DictConfig) -> dict[Any, Any]:
    plain = OmegaConf.to_container(config, resolve=False)
    assert isinstance(plain, dict)
    return plain


def options(group: str) -> list[str]:
    """The files of a configuration group."""
    return sorted(path.stem for path in (bundled("conf") / group).glob("*.yaml"))


def _is_group(key: str) -> bool:
    return bool(key) and Path(key).name == key and (bundled("conf") / key).is_dir()


def _key(argument: str) -> str:
    return argument.partition("=")[0].lstrip("+~")


def _quoted(value: str) -> str:
    if re.fullmatch(r"[A-Za-z_./][A-Za-z0-9_./:@-]*", value):
        return value
    escaped = value.replace("'", "\\'")
    return f"'{escaped}'"


def _flat(values: Mapping[Any, Any], prefix: str = "") -> list[str]:
    names = []
    for key, value in values.items():
        names.append(f"{prefix}{key}")
        if isinstance(value, Mapping):
            names += _flat(value, f"{prefix}{key}.")
    return names


def _complain(name: str, error: InputError) -> int:
    print(f"{name}: {error}", file=sys.stderr)
    return 2
