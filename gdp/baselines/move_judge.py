"""Who chooses, of several changes of a placement, the one that is tried."""

from typing import Protocol, runtime_checkable

import numpy as np
from jaxtyping import Bool, Int32

from gdp.measurement import Timeline


@runtime_checkable
class MoveJudge(Protocol):
    """Knows the step of the present placement; of the changed ones it knows what they change, and has no time of theirs."""

    def see(self, device: Int32[np.ndarray, " ops"], timeline: Timeline) -> None:
        """Takes a placement as the present one."""
        ...

    def choose(self, candidates: Int32[np.ndarray, "candidates ops"], removes_wait: Bool[np.ndarray, " candidates"]) -> int:
        """The row to be tried; `removes_wait` tells which changes were made to remove something that the step waits for."""
        ...
