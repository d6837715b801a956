"""A runtime that counts what is asked of it, so that a budget is counted by the judge and not by the placer."""

import numpy as np
from jaxtyping import Int32

from gdp.cluster import Cluster
from gdp.graph import Graph
from gdp.measurement import Measurement, MeasurementBatch, Objective, Runtime
from gdp.placement import Placement


class Recorded:
    """Passes every call on to `runtime`; one placement is one evaluation, however many come in a batch."""

    def __init__(self, runtime: Runtime, *, objective: Objective) -> None:
        self._runtime, self._objective = runtime, objective
        self.evaluations = 0
        self.improved_at: list[int] = []
        """the evaluations, counted from 1, that were better than all before."""
        self.best_s: list[float] = []
        """the objective of each of these."""

    def __call__(self, graph: Graph, cluster: Cluster, placement: Placement) -> Measurement:
        measurement = self._runtime(graph, cluster, placement)
        self._note(measurement.objective_s(self._objective))
        return measurement

    def batch(self, graph: Graph, cluster: Cluster, device: Int32[np.ndarray, "batch ops"]) -> MeasurementBatch:
        measurements = self._runtime.batch(graph, cluster, device)
        for seconds in measurements.objective_s(self._objective).tolist():
            self._note(seconds)
        return measurements

    def _note(self, seconds: float) -> None:
        self.evaluations += 1
        if seconds < (self.best_s[-1] if self.best_s else np.inf):
            self.improved_at.append(self.evaluations)
            self.best_s.append(seconds)
