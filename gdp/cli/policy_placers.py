"""A policy that was named on a command line, and the placers that it can be. Loaded once, so that all of them are of the same revision."""

import dataclasses

from gdp.cli.fill import fill
from gdp.cli.finetune_config import FinetuneSettings
from gdp.cli.hydra_config import composed, resolved
from gdp.hub.load import load, resolve
from gdp.learn.adapting_search import AdaptingSearch
from gdp.measurement import Objective, Runtime
from gdp.policy.placer import PolicyPlacer
from gdp.policy.policy import Policy
from gdp.policy.search import PolicySearch
from gdp.runtime.simulator import Simulator
from gdp.runtime.verdict import Dispatch


@dataclasses.dataclass(frozen=True, eq=False)
class NamedPolicy:
    """A policy with what placements say of where it is from."""

    policy: Policy
    name: str
    revision: str | None

    @staticmethod
    def open(text: str) -> "NamedPolicy":
        """The policy that `text` names: bundled, a folder, or on the Hub. Raises `InputError` as `gdp.hub.load` does."""
        known = resolve(text)
        return NamedPolicy(load(str(known.folder)), known.name, known.revision)

    def zero_shot(self, *, runtime: Runtime, dispatch: Dispatch, num_samples: int, seed: int, objective: Objective) -> PolicyPlacer:
        """The best of the placements that it samples."""
        return PolicyPlacer(
            self.policy,
            runtime=runtime,
            dispatch=dispatch,
            num_samples=num_samples,
            seed=seed,
            objective=objective,
            name=self.name,
            revision=self.revision,
        )

    def search(self, *, runtime: Runtime, dispatch: Dispatch, evaluations: int, seed: int) -> PolicySearch | None:
        """A search for the step time that it takes part in; `None` for a policy that can neither hold groups nor judge moves."""
        if not self.policy.can_hold and self.policy.judge is None:
            return None
        return PolicySearch(
            self.policy,
            runtime=runtime,
            predictor=Simulator(dispatch=dispatch),
            evaluations=evaluations,
            seed=seed,
            name=self.name,
            revision=self.revision,
        )

    def fine_tuning(self, *, runtime: Runtime, dispatch: Dispatch, evaluations: int, seed: int) -> AdaptingSearch | None:
        """The same search while it learns, as `finetune.py` is configured where nothing is overridden; `None` for a policy that cannot hold groups.

        It starts from the simple placements and a few samples, and counts all of them.
        """
        if not self.policy.can_hold:
            return None
        config = fill(FinetuneSettings, resolved(composed("finetune", ["workload.name=any"])), where="")
        return AdaptingSearch(
            self.policy,
            runtime=runtime,
            predictor=Simulator(dispatch=dispatch),
            evaluations=evaluations,
            seed=seed,
            config=config.learner,
            reward=config.reward,
            name=self.name,
            revision=self.revision,
        )
