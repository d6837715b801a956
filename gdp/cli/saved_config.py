"""The configuration that a run has kept, to be run again: `--config-path RUN`, with single values changed.

`RUN/config.yaml` is data: it is read with bounds, and nothing in it is interpolated, instantiated or looked up.
"""

import copy
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from hydra.core.override_parser.overrides_parser import OverridesParser
from omegaconf import DictConfig, OmegaConf

from gdp.bounded_file import read_bounded
from gdp.cli.fill import did_you_mean
from gdp.cli.hydra_config import check_grammar, check_option, composed, flat_keys, is_group
from gdp.errors import InputError
from gdp.plain_yaml import parse_yaml

KEPT = "config.yaml"
_MAX_BYTES = 2**20
_FLAG = re.compile(r"(--config-path|-cp)(?:=(.*))?", re.DOTALL)


def saved_run(name: str, arguments: Sequence[str]) -> tuple[Path | None, list[str]]:
    """The run folder that `--config-path` names, if it names one, and the other arguments.

    A folder with a `<name>.yaml` holds configurations of the user's own, and is Hydra's to read. Raises `InputError` for one that holds neither.
    """
    for number, argument in enumerate(arguments):
        found = _FLAG.fullmatch(argument)
        if found is None:
            continue
        rest = list(arguments[number + 1 :])
        if found[2] is None and not rest:
            raise InputError(f"{argument} names no folder; say {argument} RUN, the folder of a run")
        folder = Path(rest.pop(0) if found[2] is None else found[2])
        if (folder / f"{name}.yaml").is_file():
            return None, list(arguments)
        if not (folder / KEPT).is_file():
            raise InputError(f"{folder} holds no {KEPT}, so no run was made there; --config-path names the folder of a run")
        return folder, [*arguments[:number], *rest]
    return None, list(arguments)


def saved(name: str, folder: Path, overrides: Sequence[str]) -> dict[str, Any]:
    """The configuration of the run in `folder` with these overrides, in a run folder of its own where they name none.

    Raises `InputError` when the file cannot be read, or an override names what is not there.
    """
    kept = _read(folder / KEPT)
    config = copy.deepcopy(kept)
    config["run_dir"] = _plain(composed(name, ()), "run_dir")
    for text in overrides:
        check_grammar(text)
        override = OverridesParser.create().parse_override(text)
        key, value = override.key_or_group, override.value()
        if text.startswith(("+", "~")):
            raise InputError(
                f"{text} adds or removes a key, and the configuration of a run has all of its keys; change values: {key}=VALUE"
            )
        if key == "experiment":
            raise InputError(f"{text} is for a configuration that is composed anew; with --config-path change single values")
        if is_group(key):
            check_option(key, str(value))
            config[key] = _plain(composed(name, [text]), key)
            continue
        if key not in set(flat_keys(kept)):
            raise InputError(f"the configuration in {folder} has no key {key!r}; {did_you_mean(key, flat_keys(kept))}")
        inner: Any = config
        *path, last = key.split(".")
        for part in path:
            inner = inner[part]
        inner[last] = _plain(OmegaConf.create({last: value}), last)
    return config


def _read(path: Path) -> dict[str, Any]:
    data = read_bounded(path, what="the configuration", advice="name the folder of a run", max_bytes=_MAX_BYTES)
    try:
        document = parse_yaml(data.decode())
    except ValueError as error:
        raise InputError(f"{path} is no YAML: {error}; name the folder of a run") from error
    if not isinstance(document, dict) or not all(isinstance(key, str) for key in document):
        raise InputError(f"{path} is no configuration of a run: it must hold keys and values; name the folder of a run")
    return document


def _plain(config: DictConfig, key: str) -> Any:
    return OmegaConf.to_container(config[key], resolve=True) if OmegaConf.is_config(config[key]) else config[key]
