"""What one fine-tuning holds while it runs, made ready from its settings, and its snapshots."""

import dataclasses
import math
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from jaxtyping import Int32

from gdp.baselines.bounds import lower_bound
from gdp.baselines.local_search import starting_points_of_search
from gdp.candidate import Candidate
from gdp.cli.candidates import ZERO_SHOT
from gdp.cli.finetune_config import FinetuneSettings
from gdp.cli.runtimes import Judges
from gdp.learn.config import LearnConfig
from gdp.learn.explore import Exploration
from gdp.learn.learner import Learner, new_learner
from gdp.learn.snapshots import restore_snapshot, save_snapshot
from gdp.learn.task import Task, make_task
from gdp.placement import Origin
from gdp.policy.policy import Policy

_REACHED = 1.001
"""Times the lower bound: what is no slower is taken for the best there is."""


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class FineTuningUnderWay:
    """A learner on its task, and all that a run needs to go on where it stopped."""

    learner: Learner
    task: Task
    exploration: Exploration | None
    """`None` for a policy that samples whole placements."""
    judges: Judges
    learn_config: LearnConfig
    """with as many updates as there are evaluations for."""
    bound_s: float | None
    """the lower bound, in simulation; `None` where times are measured, which it does not bound."""

    @staticmethod
    def begin(
        settings: FinetuneSettings, judges: Judges, policy: Policy, candidates: Sequence[Candidate], *, origin: Origin
    ) -> "FineTuningUnderWay":
        """Before the first update. Rewards are relative to the best candidate that is not the policy's own."""
        objective = settings.reward.objective
        searches = policy.can_hold and objective == "step_time"
        simple_s = [candidate.objective_s(objective) for candidate in candidates if candidate.placement.origin.placer != origin.placer]
        reference_s = min(simple_s) if math.isfinite(min(simple_s)) else min(candidate.objective_s(objective) for candidate in candidates)
        task = make_task(
            settings.workload.name,
            judges.graph,
            judges.cluster,
            runtime=judges.predictor,
            features=policy.features,
            max_groups=None if searches else settings.finetune.max_groups,
            objective=objective,
            reference_s=reference_s,
        )
        task = dataclasses.replace(task, runtime=judges.proposed)
        parameters = list(policy.parameters()) if settings.finetune.parameters == "all" else policy.conditioning_and_heads()
        learner = new_learner(policy, parameters=parameters, seed=settings.seed)
        own = (candidate.placement.origin for candidate in candidates if candidate.placement.origin.placer == origin.placer)
        evaluations = settings.finetune.evaluations - sum(each.evaluations for each in own)
        bound_s = lower_bound(task.graph, task.cluster, objective=objective).value_s if judges.screened is None else None
        exploration = None
        if searches:
            exploration = Exploration(
                learner,
                task,
                runtime=judges.predictor,
                predictor=judges.predictor,
                evaluations=evaluations,
                config=settings.learner,
                start=_start(settings, task, candidates)[:evaluations],
                enough_s=0.0 if bound_s is None else _REACHED * bound_s,
            )
        most = exploration.num_updates if exploration is not None else max(1, evaluations // settings.learner.samples_per_update)
        return FineTuningUnderWay(
            learner=learner,
            task=task,
            exploration=exploration,
            judges=judges,
            learn_config=dataclasses.replace(settings.learner, updates=min(settings.learner.updates, most)),
            bound_s=bound_s,
        )

    def save(self, path: Path, *, run: str) -> None:
        """Writes where it stands."""
        state = None if self.judges.screened is None else self.judges.screened.state()
        searched = None if self.exploration is None else self.exploration.state()
        save_snapshot(path, self.learner, run=run, extra={"screened": state, "exploration": searched})

    def restore(self, path: Path, *, run: str) -> None:
        """Goes on from where `save` wrote that it stood. Raises `InputError` as `restore_snapshot` does."""
        extra = restore_snapshot(path, self.learner, run=run)
        if self.judges.screened is not None:
            self.judges.screened.restore(extra["screened"])
        if self.exploration is not None:
            self.exploration.restore(extra["exploration"])

    def why_it_ended_early(self) -> str | None:
        """For people; `None` after the last update."""
        if self.learner.update >= self.learn_config.updates:
            return None
        if self.exploration is not None and self.exploration.nothing_left:
            return "nothing can be faster"
        return f"none of the last {self.learn_config.patience_updates} updates found a better one"


def _start(settings: FinetuneSettings, task: Task, candidates: Sequence[Candidate]) -> Int32[np.ndarray, "starts ops"]:
    """Where the search starts: the points of any local search with this budget, and the policy's first placement."""
    points = starting_points_of_search(task.graph, task.cluster, evaluations=settings.finetune.evaluations, seed=settings.seed)
    own = [candidate.placement.device[None] for candidate in candidates if candidate.name == ZERO_SHOT]
    return np.concatenate([*own, points])
