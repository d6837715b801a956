"""What `conf/train.yaml` holds, typed."""

import dataclasses
from pathlib import Path
from typing import Any, Literal

from gdp.errors import InputError
from gdp.features.config import FeatureConfig
from gdp.hub.card import check_name
from gdp.learn.config import MAX_SEED, LearnConfig, RewardConfig
from gdp.learn.imitation import ImitationConfig
from gdp.learn.judging import JudgingConfig
from gdp.learn.limits import MAX_THREADS
from gdp.learn.sources import PretrainingConfig
from gdp.learn.validation import ValidationConfig
from gdp.policy.config import PolicyConfig
from gdp.tracking.choose import TrackerConfig


@dataclasses.dataclass(frozen=True, kw_only=True)
class TrainConfig:
    """All of `conf/train.yaml`."""

    workload: PretrainingConfig
    cluster: dict[str, Any] | None = None
    """one cluster for all tasks, in the format of `gdp.cluster.read_cluster`; `None` for those that `workload` draws."""
    cluster_source: str | None
    """`local` or a YAML file in its place."""
    features: FeatureConfig
    policy: PolicyConfig
    reward: RewardConfig
    learner: LearnConfig
    tracker: TrackerConfig
    judging: JudgingConfig
    imitation: ImitationConfig
    validation: ValidationConfig
    init: str | None
    """a policy to go on from, as `gdp.hub.load` takes it, with its own `policy` and `features`; `None` for a new one."""
    name: str
    """of the checkpoint."""
    device: Literal["cpu", "cuda"]
    """where the policy learns."""
    num_threads: int
    """of the simulator, and processes that search."""
    seed: int
    run_dir: Path
    resume: Literal["auto", "never"]
    """`auto` continues what the folder holds; `never` refuses a folder that holds a run."""
    snapshot_every_updates: int

    def __post_init__(self) -> None:
        check_name(self.name)
        if not 0 <= self.seed <= MAX_SEED:
            raise InputError(f"seed is {self.seed}; it must lie between 0 and {MAX_SEED}")
        if self.snapshot_every_updates < 1:
            raise InputError(f"snapshot_every_updates is {self.snapshot_every_updates}; it must be at least 1")
        if not 1 <= self.num_threads <= MAX_THREADS:
            raise InputError(f"num_threads is {self.num_threads}; it must be between 1 and {MAX_THREADS}")
