"""Teaching the judge of a policy, round by round: searches in processes of their own, whose moves are kept in the run folder, then a network fitted to all that is known."""

import dataclasses
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from rich.console import Console

from gdp.array_file import read_arrays, write_arrays
from gdp.cli.pretraining_tasks import pretraining_source
from gdp.cli.progress import progress_bar
from gdp.cli.run_folder import JUDGE
from gdp.cli.search_processes import search_in_processes
from gdp.cli.train_config import TrainConfig
from gdp.cluster import Cluster
from gdp.errors import InputError
from gdp.features.move_features import MOVE_FEATURES
from gdp.learn.judging import JudgedMoves, judged_moves, teach
from gdp.learn.sources import PretrainingTasks
from gdp.policy.judge import JudgeNetwork

_SHOWN_EVERY = 50
"""Steps of the optimiser."""


def teach_judge(
    settings: TrainConfig, cluster: Cluster | None, network: JudgeNetwork, *, goes_on: bool, stopped: Callable[[], int], console: Console
) -> dict[str, float] | None:
    """Gives `network` its weights, from the run folder where an earlier part of the run has left them.

    The searches of each round ask the judge of the round before; those of the first ask `network` as it is where it `goes_on`, and nobody where it is new.
    Returns the figures of the last round, means over its last tenth of steps; `None` when nothing was to be done, or when the run was asked to stop.
    """
    config, figures = settings.judging, None
    if goes_on and config.rounds and not _weights(settings, 0).exists():
        _write(_weights(settings, 0), network)
    for number in range(1, config.rounds + 1):
        path = _weights(settings, number)
        if not path.exists():
            if not _search(settings, cluster, number, stopped=stopped, console=console):
                return None
            figures = _teach(settings, network, number, console=console)
            _write(path, network)
        _load(path, network)
    return figures


def taught_judge(settings: TrainConfig) -> JudgeNetwork | None:
    """The judge that `teach_judge` has left in the run folder; `None` where none was taught."""
    taught = settings.policy.judge_width and settings.judging.rounds
    return _network(settings, _weights(settings, settings.judging.rounds)) if taught else None


def _network(settings: TrainConfig, weights: Path) -> JudgeNetwork:
    network = JudgeNetwork(settings.policy.judge_width, generator=torch.Generator())
    _load(weights, network)
    return network


def _teach(settings: TrainConfig, network: JudgeNetwork, number: int, *, console: Console) -> dict[str, float]:
    config, last = settings.judging, []
    known = [_read(_moves(settings, task)) for task in range(number * config.tasks_per_round)]
    generator = torch.Generator().manual_seed(settings.seed)
    with progress_bar(console, f"teaching the judge, round {number} of {config.rounds}", total=config.steps) as advance:
        for step, metrics in enumerate(teach(network, known, config=config, generator=generator), start=1):
            if step > config.steps - max(1, config.steps // 10):
                last.append(metrics)
            if step % _SHOWN_EVERY == 0 or step == config.steps:
                advance(step, f"loss {metrics['judge/improves_loss']:.3f}")
    return {name: float(np.mean([metrics[name] for metrics in last])) for name in last[0]}


def _search(settings: TrainConfig, cluster: Cluster | None, number: int, *, stopped: Callable[[], int], console: Console) -> bool:
    """Searches the tasks of a round that have not been searched; tells whether all are."""
    count = settings.judging.tasks_per_round
    missing = [task for task in range((number - 1) * count, number * count) if not _moves(settings, task).exists()]
    if not missing:
        return True
    title = f"searching for the judge, round {number} of {settings.judging.rounds}"
    with progress_bar(console, title, total=len(missing)) as advance:
        return search_in_processes(
            _search_task,
            missing,
            num_processes=settings.num_threads,
            prepare=_open,
            prepared_with=(settings, cluster, _weights(settings, number - 1) if number > 1 or _weights(settings, 0).exists() else None),
            stopped=stopped,
            advance=lambda done: advance(done, ""),
        )


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class _Worker:
    """What a worker process holds."""

    settings: TrainConfig
    source: PretrainingTasks
    network: JudgeNetwork | None


_own: _Worker | None = None


def _open(settings: TrainConfig, cluster: Cluster | None, weights: Path | None) -> None:
    global _own
    config = settings.judging
    workload = dataclasses.replace(
        settings.workload,
        num_tasks=config.rounds * config.tasks_per_round,
        min_ops=config.min_ops,
        max_ops=config.max_ops,
        cached_tasks=1,
    )
    alone = dataclasses.replace(settings, workload=workload, num_threads=1)
    _own = _Worker(
        settings=settings, source=pretraining_source(alone, cluster), network=None if weights is None else _network(settings, weights)
    )


def _search_task(number: int) -> None:
    assert _own is not None
    task = _own.source.task(number)
    moves = JudgedMoves.none()
    if task is not None and task.cluster.num_devices > 1:
        generator = np.random.default_rng((_own.settings.seed, 2, number))
        moves = judged_moves(task, _own.network, config=_own.settings.judging, generator=generator)
    write_arrays(_moves(_own.settings, number), {"inputs": moves.inputs.astype(np.float16), "gain": moves.gain})


def _read(path: Path) -> JudgedMoves:
    arrays = read_arrays(path, {"inputs": (np.float16, (None, 2 * len(MOVE_FEATURES))), "gain": (np.float32, (None,))})
    if len(arrays["inputs"]) != len(arrays["gain"]):
        raise InputError(f"{path} has {len(arrays['inputs'])} moves and {len(arrays['gain'])} gains; delete the file, and it is made anew")
    if (np.abs(arrays["gain"]) > 1).any():
        raise InputError(f"{path} has a gain that is not between -1 and 1; delete the file, and it is made anew")
    return JudgedMoves(inputs=arrays["inputs"].astype(np.float32), gain=arrays["gain"])


def _write(path: Path, network: JudgeNetwork) -> None:
    write_arrays(path, {name: value.detach().cpu().numpy() for name, value in network.state_dict().items()})


def _load(path: Path, network: JudgeNetwork) -> None:
    """Gives `network` the weights in the file."""
    arrays = read_arrays(path, {name: (np.float32, tuple(value.shape)) for name, value in network.state_dict().items()})
    network.load_state_dict({name: torch.from_numpy(array) for name, array in arrays.items()})


def _moves(settings: TrainConfig, task: int) -> Path:
    return settings.run_dir / JUDGE / f"{task}.safetensors"


def _weights(settings: TrainConfig, number: int) -> Path:
    return settings.run_dir / JUDGE / f"round-{number}.safetensors"
