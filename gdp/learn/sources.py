"""Where tasks come from: one fixed list, or a pool of graphs on random clusters for pretraining."""

import dataclasses
from collections import OrderedDict
from collections.abc import Callable, Sequence

import numpy as np

from gdp.cluster import Cluster
from gdp.errors import InputError
from gdp.features.config import FeatureConfig
from gdp.graph import Graph
from gdp.learn.limits import MAX_OPS, MAX_STEPS, check_counts
from gdp.learn.random_cluster import RandomClusterConfig, random_cluster
from gdp.learn.task import NothingRuns, Task, make_task
from gdp.measurement import Objective, Runtime
from gdp.runtime.simulator import Simulator
from gdp.runtime.verdict import Dispatch
from gdp.workloads.blocked import blocked
from gdp.workloads.synthetic import cells, layered, unrolled_rnn

FAMILIES = (layered, cells, unrolled_rnn, blocked)
"""The generators of pretraining; the catalog's fourth, series-parallel, is of the validation split."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class PretrainingConfig:
    """Which tasks a policy is pretrained on: a pool of pairs of a graph and a cluster, each drawn again and again."""

    num_tasks: int
    """size of the pool; task `i` is the same in every run with the same seed."""
    synthetic_fraction: float
    """share of tasks whose graph is a random one of a synthetic family; the others take one of the named workloads. With 0 these are taken in turn."""
    workloads: tuple[str, ...]
    """names of the catalog, `*` for all of its pretraining split, `.parquet` files, and folders with a pulled corpus."""
    leave_out: tuple[str, ...]
    """families of the catalog of which nothing is learned, whatever `workloads` names."""
    min_ops: int
    max_ops: int
    """sizes of the synthetic graphs, uniform in the logarithm."""
    max_groups: int
    """decisions per graph; larger graphs are grouped more coarsely."""
    presets: tuple[str, ...]
    """cluster presets, taken by `preset_fraction` of the tasks. Where nothing is random, each takes all workloads before the next does."""
    preset_fraction: float
    program_order_fraction: float
    """share of tasks whose devices keep the program's order, as PyTorch's do; in the others they take what is ready first, as TensorFlow's."""
    random_cluster: RandomClusterConfig
    cached_tasks: int
    """tasks kept ready; the oldest unused one is made anew when it is drawn again."""

    def __post_init__(self) -> None:
        check_counts(
            "workload",
            (
                ("num_tasks", self.num_tasks, 1, MAX_STEPS),
                ("max_ops", self.max_ops, 8, MAX_OPS),
                ("max_groups", self.max_groups, 1, MAX_OPS),
                ("cached_tasks", self.cached_tasks, 1, MAX_STEPS),
            ),
        )
        if not 8 <= self.min_ops <= self.max_ops:
            raise InputError(f"workload has min_ops {self.min_ops} and max_ops {self.max_ops}; they must ascend from 8 on")
        for name, share in (
            ("synthetic_fraction", self.synthetic_fraction),
            ("preset_fraction", self.preset_fraction),
            ("program_order_fraction", self.program_order_fraction),
        ):
            if not 0 <= share <= 1:
                raise InputError(f"workload.{name} is {share}; it must lie between 0 and 1")
        if self.synthetic_fraction < 1 and not self.workloads:
            raise InputError(
                "workload.workloads is empty but synthetic_fraction is below 1; name workloads, or '*' for the pretraining split"
            )
        if self.preset_fraction > 0 and not self.presets:
            raise InputError("workload.presets is empty but preset_fraction is above 0; name cluster presets")


@dataclasses.dataclass(frozen=True, kw_only=True)
class FixedTasks:
    """A `TaskSource` that draws from a list, each task alike."""

    tasks: Sequence[Task]

    def __call__(self, generator: np.random.Generator) -> Task:
        return self.tasks[0] if len(self.tasks) == 1 else self.tasks[int(generator.integers(len(self.tasks)))]


class PretrainingTasks:
    """A `TaskSource` over a pool of (graph, cluster) pairs, made when they are first drawn.

    Task `i` depends on the seed and `i` alone, so a run that continues meets the same tasks whatever is cached. A pair on which no simple placement can run
    is passed over: the draw is repeated.
    """

    def __init__(
        self,
        config: PretrainingConfig,
        *,
        workloads: Sequence[tuple[str, Callable[[], Graph]]],
        clusters: Sequence[Cluster],
        fixed_cluster: Cluster | None,
        num_threads: int,
        features: FeatureConfig,
        objective: Objective,
        seed: int,
    ) -> None:
        """`workloads` and `clusters` are what the config's names stand for; with a `fixed_cluster` every task is on that one. Simulators get `num_threads`."""
        self._config = config
        self._workloads, self._clusters, self._fixed_cluster = workloads, clusters, fixed_cluster
        self._num_threads, self._features, self._objective, self._seed = num_threads, features, objective, seed
        self._ready: OrderedDict[int, Task | None] = OrderedDict()
        self._graphs: dict[str, Graph] = {}

    def __call__(self, generator: np.random.Generator) -> Task:
        for _ in range(100):
            task = self.task(int(generator.integers(self._config.num_tasks)))
            if task is not None:
                return task
        raise InputError(
            "a hundred tasks in a row have a graph that no simple placement can run on its cluster; use smaller workloads or more memory"
        )

    def task(self, number: int) -> Task | None:
        """Task `number` of the pool; `None` when no simple placement of it can run."""
        if number not in self._ready:
            if len(self._ready) >= self._config.cached_tasks:
                self._ready.popitem(last=False)
            self._ready[number] = self._make(number)
        self._ready.move_to_end(number)
        return self._ready[number]

    def graph(self, number: int) -> tuple[str, Graph]:
        """The graph of task `number`, with the name of its family or workload."""
        return self._graph(number, self._generator(number))

    def _generator(self, number: int) -> np.random.Generator:
        return np.random.default_rng((self._seed, number))

    def _make(self, number: int) -> Task | None:
        config, generator = self._config, self._generator(number)
        name, graph = self._graph(number, generator)
        dispatch: Dispatch = "program_order" if generator.random() < config.program_order_fraction else "ready_order"
        runtime = Simulator(dispatch=dispatch, num_threads=self._num_threads)
        if self._fixed_cluster is not None:
            cluster = self._fixed_cluster
        elif config.preset_fraction == 1 and config.synthetic_fraction == 0:
            cluster = self._clusters[number // len(self._workloads) % len(self._clusters)]
        elif generator.random() < config.preset_fraction:
            cluster = self._clusters[int(generator.integers(len(self._clusters)))]
        else:
            cluster = random_cluster(
                generator, config.random_cluster, name=f"random{number}", needed_bytes=_needed_bytes(graph, runtime, config)
            )
        try:
            return make_task(
                f"{number}:{name}@{cluster.name}",
                graph,
                cluster,
                runtime=runtime,
                features=self._features,
                max_groups=config.max_groups,
                objective=self._objective,
            )
        except NothingRuns:
            return None

    def _graph(self, number: int, generator: np.random.Generator) -> tuple[str, Graph]:
        config = self._config
        if generator.random() < config.synthetic_fraction:
            family = FAMILIES[int(generator.integers(len(FAMILIES)))]
            num_ops = int(np.exp(generator.uniform(np.log(config.min_ops), np.log(config.max_ops))))
            return family.__name__, family(generator, num_ops=num_ops, training=bool(generator.random() < 0.5))
        in_turn = config.synthetic_fraction == 0
        name, build = self._workloads[number % len(self._workloads) if in_turn else int(generator.integers(len(self._workloads)))]
        if name not in self._graphs:
            self._graphs[name] = build()
        return name, self._graphs[name]


def _needed_bytes(graph: Graph, runtime: Runtime, config: PretrainingConfig) -> int:
    """Peak memory of the whole graph on one device that is large enough."""
    roomy = dataclasses.replace(config.random_cluster, tight_memory_fraction=0.0)
    total = int(graph.param_bytes.sum() + graph.tensor_bytes.sum() + graph.temp_bytes.max())
    cluster = random_cluster(np.random.default_rng(0), roomy, name="roomy", needed_bytes=total)
    measurement = runtime.batch(graph, cluster, np.zeros((1, graph.num_ops), np.int32))
    return int(measurement.peak_memory_bytes[0].max())
