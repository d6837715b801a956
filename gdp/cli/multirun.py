"""A run of every combination of values: `train.py -m seed=0,1,2`. Each is a process of its own with a run folder of its own, so that one that fails takes no other with it.

The values come from the command line and from `hydra.sweeper.params` of the experiment, which the command line overrides.
"""

import dataclasses
import itertools
import re
import shlex
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

from hydra import compose, initialize_config_dir
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.errors import HydraException
from omegaconf import OmegaConf
from rich.console import Console
from rich.table import Table

from gdp.bounded_file import is_absent, read_bounded
from gdp.bundled import bundled
from gdp.cli.hydra_config import check_overrides, composed, translate
from gdp.cli.quoted import quoted
from gdp.cli.run_folder import without_run_dir
from gdp.cli.saved_config import saved
from gdp.errors import InputError
from gdp.plain_json import parse_json
from gdp.tracking.jsonl import METRICS

_MAX_RUNS = 10_000
_MAX_BYTES = 2**30
_STOPPED = (128 + signal.SIGINT, 128 + signal.SIGTERM)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Job:
    """One run of several."""

    name: str
    """of its folder: what is special about it."""
    overrides: tuple[str, ...]


def without_flag(arguments: Sequence[str]) -> tuple[bool, list[str]]:
    """Whether `-m` or `--multirun` is among the arguments, and the others."""
    rest = [argument for argument in arguments if argument not in ("-m", "--multirun")]
    return len(rest) < len(arguments), rest


def run_all(name: str, arguments: Sequence[str], *, configuration: Path | None, command: Sequence[str]) -> int:
    """Runs `train` or `finetune` once for every combination, one after the other, and prints what came of each.

    Args:
        name: of the program.
        arguments: overrides; those with several values make several runs.
        configuration: the folder of the run whose configuration is taken, if one is.
        command: as it was typed.

    Returns the exit code: that of the run that was stopped, else 0, or 2 when any failed. Raises `InputError` before the first run when one could not be configured.
    """
    options = [argument for argument in arguments if argument.startswith("-")]
    if options:
        raise InputError(f"{options[0]} is an option of a single run; with -m give overrides alone")
    base = Path(composed(name, [argument for argument in arguments if argument.startswith("run_dir=")])["run_dir"])
    jobs = several(name, without_run_dir(arguments), composes=configuration is None)
    for job in jobs:
        overrides = translate(name, job.overrides)
        if configuration is None:
            check_overrides(name, overrides)
        else:
            saved(name, configuration, overrides)
    console, codes = Console(stderr=True, soft_wrap=True, highlight=False), []
    for number, job in enumerate(jobs, start=1):
        console.print(f"run {number} of {len(jobs)}: {' '.join(job.overrides)}", markup=False)
        begin = [sys.executable, "-m", f"gdp.cli.{name}"] + ([] if configuration is None else [f"--config-path={configuration}"])
        with _left_to_the_run() as run:
            codes.append(run([*begin, *job.overrides, f"run_dir={quoted(str(base / job.name))}"]))
        if codes[-1] in _STOPPED:
            again = shlex.join([*without_run_dir(command), f"run_dir={quoted(str(base))}"])
            console.print(f"stopped in run {number} of {len(jobs)}; continue with\n  {again}", markup=False)
            break
    Console(soft_wrap=True, highlight=False).print(_table(name, base, jobs, codes))
    return codes[-1] if codes[-1] in _STOPPED else 2 * any(codes)


def several(name: str, arguments: Sequence[str], *, composes: bool) -> list[Job]:
    """The runs that these overrides ask for, the last value changing fastest."""
    arguments = list(arguments)
    if composes:
        given = {argument.partition("=")[0].lstrip("+") for argument in arguments}
        params = _sweeper_params(name, [argument for argument in arguments if argument.startswith("experiment=")])
        arguments += [f"{key}={value}" for key, value in params.items() if key not in given]
    choices = [_values(argument) for argument in arguments]
    swept = [number for number, values in enumerate(choices) if len(values) > 1]
    jobs = []
    for picked in itertools.islice(itertools.product(*choices), _MAX_RUNS + 1):
        special = "+".join(re.sub(r"[^A-Za-z0-9._]+", "-", picked[number].lstrip("+")) for number in swept)
        jobs.append(Job(name=special or "only", overrides=picked))
    if len(jobs) > _MAX_RUNS:
        raise InputError(f"these values make over {_MAX_RUNS} runs; give fewer")
    shared, times = Counter(job.name for job in jobs).most_common(1)[0]
    if times > 1:
        raise InputError(f"two runs would share the folder {shared}; give each value once, and values that differ in a letter or a digit")
    return jobs


def _values(argument: str) -> list[str]:
    try:
        override = OverridesParser.create().parse_override(argument)
    except HydraException as error:
        raise InputError(f"the argument {argument!r} cannot be read ({str(error).splitlines()[0]})") from error
    if not override.is_sweep_override():
        return [argument]
    if not override.is_discrete_sweep():
        raise InputError(f"the argument {argument!r} names no single values; list them: {override.key_or_group}=1,2,3")
    return [f"{argument.partition('=')[0]}={value}" for value in override.sweep_string_iterator()]


def _sweeper_params(name: str, experiment: Sequence[str]) -> dict[str, Any]:
    """What the experiment says of several values."""
    if len(experiment) != 1 or len(_values(experiment[0])) > 1:
        return {}
    check_overrides(name, experiment)
    with initialize_config_dir(config_dir=str(bundled("conf")), version_base="1.3"):
        config = compose(config_name=name, overrides=list(experiment), return_hydra_config=True)
    params = OmegaConf.to_container(config.hydra.sweeper.params) if config.hydra.sweeper.params is not None else {}
    assert isinstance(params, dict)
    return {str(key): value for key, value in params.items()}


@contextmanager
def _left_to_the_run() -> Iterator[Any]:
    """Yields what starts a process and waits for its exit code. A Ctrl-C reaches that process, too, and a SIGTERM is passed on; it decides when to stop."""
    child: list[subprocess.Popen[bytes]] = []

    def passed_on(number: int, frame: FrameType | None) -> None:
        if child and number == signal.SIGTERM:
            child[0].send_signal(number)

    def run(command: Sequence[str]) -> int:
        child.append(subprocess.Popen(command))
        code = child[0].wait()
        return 128 - code if code < 0 else code

    former = {number: signal.signal(number, passed_on) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield run
    finally:
        for number, handler in former.items():
            signal.signal(number, handler)


def _table(name: str, base: Path, jobs: Sequence[Job], codes: Sequence[int]) -> Table:
    table = Table(title=f"{len(jobs)} runs in {base}", title_justify="left")
    table.add_column("run")
    table.add_column("ended with", justify="right")
    table.add_column("lowest valid/sampled_over_simple" if name == "train" else "best step (ms)", justify="right")
    for job, code in itertools.zip_longest(jobs, codes):
        found = _outcome(name, base / job.name)
        table.add_row(job.name, "not run" if code is None else str(code), "-" if found is None else f"{found:.4g}")
    return table


def _outcome(name: str, folder: Path) -> float | None:
    """What a run has reached so far: of a pretraining its best validation, of a fine-tuning its best candidate's time in milliseconds."""
    path = folder / (METRICS if name == "train" else "result.json")
    if is_absent(path):
        return None
    data = read_bounded(path, what="the file", advice="move it away", max_bytes=_MAX_BYTES)
    if name == "train":
        best = [line["valid/best_so_far"] for line in map(parse_json, data.splitlines()) if "valid/best_so_far" in line]
        return float(best[-1]) if best else None
    result = parse_json(data)
    return 1e3 * float(result["candidates"][result["best"]]["step_time_s"])
