"""A placement that was considered, with what is known of it."""

import dataclasses
from collections.abc import Sequence

from gdp.measurement import Measurement, Objective, Status
from gdp.placement import Placement


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class Candidate:
    """One placement among those that are compared."""

    name: str
    """unique among them: `zero-shot`, `metis`, `one device: cuda:0`."""
    placement: Placement
    predicted: Measurement
    """from the simulator."""
    measured: Measurement | None = None
    """from the real devices, where it ran there."""
    wall_s: float | None = None
    """seconds the placer took, its evaluations included, where they were taken."""

    @property
    def judged(self) -> Measurement:
        """What was measured, else what was predicted."""
        return self.predicted if self.measured is None else self.measured

    @property
    def num_devices(self) -> int:
        """How many devices the placement uses."""
        return len(set(self.placement.device.tolist()))

    def objective_s(self, objective: Objective) -> float:
        """The number to minimise; infinite when the placement cannot run."""
        return self.judged.objective_s(objective)


def best(candidates: Sequence[Candidate], *, objective: Objective) -> Candidate:
    """The candidate with the lowest objective, the first one among equals; one that cannot run only when none can."""
    return min(candidates, key=lambda candidate: candidate.objective_s(objective))


def best_single(candidates: Sequence[Candidate], *, objective: Objective) -> Candidate | None:
    """The best candidate that uses one device and can run; `None` when none can."""
    single = [candidate for candidate in candidates if candidate.judged.status == Status.OK and candidate.num_devices == 1]
    return best(single, objective=objective) if single else None
