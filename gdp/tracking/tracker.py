"""Where the numbers of a run go."""

from collections.abc import Mapping, Sequence
from typing import Protocol, runtime_checkable


@runtime_checkable
class Tracker(Protocol):
    """Takes the numbers of a run, step by step."""

    def log(self, metrics: Mapping[str, float], *, step: int) -> None:
        """Records the numbers of one step; steps never decrease."""
        ...

    def close(self) -> None:
        """Ends the run: everything logged is then on disk, or in the hands of the backend's own process."""
        ...


class Several:
    """Hands everything to several trackers."""

    def __init__(self, trackers: Sequence[Tracker]) -> None:
        self._trackers = tuple(trackers)

    def log(self, metrics: Mapping[str, float], *, step: int) -> None:
        for tracker in self._trackers:
            tracker.log(metrics, step=step)

    def close(self) -> None:
        for tracker in self._trackers:
            tracker.close()
