"""What `conf/finetune.yaml` holds, typed."""

import dataclasses
from pathlib import Path
from typing import Any, Literal

from gdp.errors import InputError
from gdp.features.config import FeatureConfig
from gdp.learn.config import MAX_SEED, LearnConfig, RewardConfig
from gdp.learn.finetune import FinetuneConfig
from gdp.learn.limits import MAX_SAMPLES, MAX_THREADS, check_counts
from gdp.policy.config import PolicyConfig
from gdp.tracking.choose import TrackerConfig

MAX_WAIT_S = 7 * 86400.0


@dataclasses.dataclass(frozen=True, kw_only=True)
class NamedWorkload:
    """The program to place."""

    name: str
    """a workload of the catalog, FILE.py:FUNCTION, or a graph file (.parquet)."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class SimulatorConfig:
    """The simulator as the runtime."""

    kind: Literal["simulator"]
    dispatch: Literal["ready_order", "program_order"] | None
    """see `gdp.runtime.simulator`; `None` for that of the program's framework, as in `gdp place`."""
    num_threads: int

    def __post_init__(self) -> None:
        check_counts("runtime", (("num_threads", self.num_threads, 1, MAX_THREADS),))


@dataclasses.dataclass(frozen=True, kw_only=True)
class MeasuredConfig:
    """Measured step times of a program on this machine, screened by the simulator with measured op times."""

    kind: Literal["pytorch", "tensorflow"]
    measured_per_update: int
    """placements of an update that really run."""
    max_time_s: float
    """seconds of timing that one placement may take, warming up left out; the final verdict takes a fixed number of steps instead."""
    timeout_s: float
    """bound on each answer of the worker process."""
    num_threads: int
    """of the simulator that screens."""
    also_on: tuple[tuple[str, ...], ...]
    """further devices, each list like those of the cluster and in its order, on which placements are measured at the same time (`gdp.runtime.pool`)."""
    compiled: bool = False
    """every piece of a PyTorch program through `torch.compile`: seconds to minutes for each placement before it is timed."""

    def __post_init__(self) -> None:
        check_counts(
            "runtime",
            (("measured_per_update", self.measured_per_update, 1, MAX_SAMPLES), ("num_threads", self.num_threads, 1, MAX_THREADS)),
        )
        for name, seconds in (("max_time_s", self.max_time_s), ("timeout_s", self.timeout_s)):
            if not 0 < seconds <= MAX_WAIT_S:
                raise InputError(f"runtime.{name} is {seconds}; it must be above 0 and at most {MAX_WAIT_S:g} (a week)")
        if self.compiled and self.kind != "pytorch":
            raise InputError(f"runtime.compiled is for PyTorch programs, but runtime.kind is {self.kind!r}; leave it out")


@dataclasses.dataclass(frozen=True, kw_only=True)
class FinetuneSettings:
    """All of `conf/finetune.yaml`."""

    workload: NamedWorkload
    cluster: dict[str, Any] | None = None
    """in the format of `gdp.cluster.read_cluster`; `None` with no `cluster_source` is this machine."""
    cluster_source: str | None
    features: FeatureConfig
    policy: PolicyConfig
    runtime: dict[str, Any]
    """the fields of `SimulatorConfig` or `MeasuredConfig`, told apart by `kind`."""
    reward: RewardConfig
    learner: LearnConfig
    tracker: TrackerConfig
    init: str | None
    """a bundled policy, a folder, or a repository of the Hugging Face Hub; `None` for a new policy as `policy` and `features` say."""
    finetune: FinetuneConfig
    seed: int
    run_dir: Path
    resume: Literal["auto", "never"]
    snapshot_every_updates: int

    def __post_init__(self) -> None:
        if not 0 <= self.seed <= MAX_SEED:
            raise InputError(f"seed is {self.seed}; it must lie between 0 and {MAX_SEED}")
        if self.snapshot_every_updates < 1:
            raise InputError(f"snapshot_every_updates is {self.snapshot_every_updates}; it must be at least 1")
        if self.init == "":
            raise InputError("init is empty; name a bundled policy, a folder or org/name, or say init=null for a new policy")
        if self.learner.tasks_per_update != 1:
            raise InputError(f"learner.tasks_per_update is {self.learner.tasks_per_update}; fine-tuning has one task: use 1")
