"""How `train.py` and `finetune.py` begin: a configuration composed by Hydra or kept by a run, one run or one for every value, and one sentence for a mistake."""

import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import hydra
from omegaconf import DictConfig

from gdp.bundled import bundled
from gdp.cli.hydra_config import check_overrides, composed, resolved, translate
from gdp.cli.multirun import run_all, without_flag
from gdp.cli.saved_config import saved, saved_run
from gdp.errors import InputError

Run = Callable[[dict[str, Any], Sequence[str]], int]
"""What is run with the resolved configuration and the command line as it was typed; it returns the exit code."""


def launch(name: str, run: Run, arguments: Sequence[str]) -> int:
    """Composes `conf/<name>.yaml` with the command line's overrides, runs, and returns the exit code: 2 for a user's mistake, told in one sentence.

    `-m` makes a run of every combination of values (`gdp.cli.multirun`), `--config-path RUN` takes the configuration that a run has kept (`gdp.cli.saved_config`).
    `--debug` shows the traceback of a mistake, as `HYDRA_FULL_ERROR=1` does. Hydra's other options (`--help`, `--cfg job`) are Hydra's to answer.
    """
    full_error = "--debug" in arguments or os.environ.get("HYDRA_FULL_ERROR") == "1"
    if full_error:
        os.environ["HYDRA_FULL_ERROR"] = "1"
    typed = [argument for argument in arguments if argument != "--debug"]
    command = [*_program(), *typed]
    try:
        several, typed = without_flag(typed)
        folder, rest = saved_run(name, typed)
        if several:
            return run_all(name, rest, configuration=folder, command=command)
        translated = translate(name, rest)
        if any(argument.startswith("-") for argument in translated):
            if folder is not None:
                raise InputError(
                    "--config-path RUN takes a run's configuration as it is and goes with overrides alone; leave the other options out"
                )
            return _through_hydra(name, run, translated, command)
        if folder is not None:
            return run(saved(name, folder, translated), command)
        check_overrides(name, translated)
        return run(resolved(composed(name, translated)), command)
    except InputError as error:
        if full_error:
            raise
        print(f"{name}: {error}", file=sys.stderr)
        return 2


def _through_hydra(name: str, run: Run, arguments: Sequence[str], command: Sequence[str]) -> int:
    """Lets Hydra read its own options, and run where they leave something to run."""
    code = [0]

    def task(config: DictConfig) -> None:
        try:
            code[0] = run(resolved(config), command)
        except InputError as error:
            if os.environ.get("HYDRA_FULL_ERROR") == "1":
                raise
            print(f"{name}: {error}", file=sys.stderr)
            code[0] = 2

    sys.argv[1:] = arguments
    hydra.main(version_base="1.3", config_path=str(bundled("conf")), config_name=name)(task)()
    return code[0]


def _program() -> list[str]:
    """How this program was called."""
    spec = sys.modules["__main__"].__spec__
    if spec is not None:
        return ["python", "-m", spec.name]
    script = Path(sys.argv[0])
    return ["python", str(script)] if script.suffix == ".py" else [script.name]
