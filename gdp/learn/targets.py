"""Searched placements of a pool of tasks, kept in a folder: found once, in any order and by any process, whatever becomes of the run."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from gdp.array_file import read_arrays, write_arrays
from gdp.errors import InputError
from gdp.learn.imitation import as_target, searched
from gdp.learn.learner import Incumbent
from gdp.learn.sources import PretrainingTasks
from gdp.learn.task import Task
from gdp.measurement import Objective
from gdp.policy.judge import JudgeNetwork
from gdp.policy.policy import Policy


def imitation_order(num_tasks: int, *, steps: int, seed: int) -> list[int]:
    """Which task each step is taught by: all of the pool once, in a random order, then all of it again in another."""
    generator = np.random.default_rng((seed, 1))
    order: list[int] = []
    while len(order) < steps:
        order += generator.permutation(num_tasks).tolist()
    return order[:steps]


class Targets:
    """The placements that a search of `evaluations` found for the tasks of `source`: one file of device numbers a task, empty where nothing runs."""

    def __init__(self, folder: Path, source: PretrainingTasks, *, evaluations: int, objective: Objective, seed: int) -> None:
        self._folder, self._source, self._evaluations, self._objective, self._seed = folder, source, evaluations, objective, seed
        self._known: dict[int, Incumbent] = {}

    def missing(self, numbers: Sequence[int]) -> list[int]:
        """Those of the tasks that have not been searched, each once, ascending."""
        return [number for number in sorted(set(numbers)) if not self._path(number).exists()]

    def search(self, number: int, *, judge: JudgeNetwork | None = None, expert: Policy | None = None) -> None:
        """Finds the placement of a task, with the help of a judge and of a policy where there are some, and writes it. The same whenever and wherever it is done."""
        task = self._source.task(number)
        device = np.zeros(0, np.int32)
        if task is not None:
            device = searched(task, evaluations=self._evaluations, objective=self._objective, seed=self._seed, judge=judge, expert=expert)
        write_arrays(self._path(number), {"device": device.astype(np.int16)})

    def __call__(self, number: int) -> tuple[Task, Incumbent] | None:
        """A task with its target; `None` where nothing runs."""
        task = self._source.task(number)
        if task is None:
            return None
        if number not in self._known:
            path = self._path(number)
            device = read_arrays(path, {"device": (np.int16, (task.graph.num_ops,))})["device"].astype(np.int32)
            if not ((device >= 0) & (device < task.cluster.num_devices)).all():
                raise InputError(f"{path} does not fit task {task.name!r}; delete the file, and it is searched anew")
            self._known[number] = as_target(task, device)
        return task, self._known[number]

    def _path(self, number: int) -> Path:
        return self._folder / f"{number}.safetensors"
