"""A runtime that predicts every placement and really measures the few most promising ones."""

from collections.abc import Mapping

import numpy as np
from jaxtyping import Int32

from gdp.cluster import Cluster
from gdp.errors import InputError
from gdp.graph import Graph
from gdp.measurement import Measurement, MeasurementBatch, Objective, Runtime, Status, stack
from gdp.placement import Placement
from gdp.runtime.journal import Journal, Key, Measured, best_of, key_of
from gdp.runtime.pool import measured_each


class ScreenedRuntime:
    """A `Runtime`: of each batch, `runtime` measures the `measured_per_batch` distinct placements that `predictor` says are best and that were not measured before.

    The other rows keep the prediction, times the median of measured over predicted step times so far; their `num_runs` is 0. A placement that was measured before keeps its
    measurement. A placement that is predicted not to run is not tried. A `Pool` measures those of a batch side by side.

    What a batch gives depends on the batches before it and on the measurements alone. The journal answers for placements that an earlier run has measured, so a
    run that starts again asks for the same placements and goes through the same numbers.
    """

    def __init__(
        self, *, predictor: Runtime, runtime: Runtime, measured_per_batch: int, journal: Journal, objective: Objective = "step_time"
    ) -> None:
        if measured_per_batch < 1:
            raise InputError(f"measured_per_batch is {measured_per_batch}; at least 1 placement of a batch must be measured")
        self._predictor, self._runtime, self._journal = predictor, runtime, journal
        self._measured_per_batch = measured_per_batch
        self._objective = objective
        self._measured: dict[Key, Measured] = {}
        self._ratios: dict[Key, float] = {}

    @property
    def num_measured(self) -> int:
        """Distinct placements measured so far in this run, those that the journal answered among them."""
        return len(self._measured)

    @property
    def measured(self) -> list[Measured]:
        """All placements measured so far in this run, in order."""
        return list(self._measured.values())

    @property
    def best(self) -> Measured | None:
        """The best placement measured so far in this run; none when none could run."""
        return best_of(list(self._measured.values()), self._objective)

    @property
    def correction(self) -> float:
        """Median of measured over predicted step times; 1 before the first measurement."""
        return float(np.median(list(self._ratios.values()))) if self._ratios else 1.0

    def __call__(self, graph: Graph, cluster: Cluster, placement: Placement) -> Measurement:
        """Measures one placement, unless it is predicted not to run."""
        return self.batch(graph, cluster, placement.device[np.newaxis])[0]

    def batch(self, graph: Graph, cluster: Cluster, device: Int32[np.ndarray, "batch ops"]) -> MeasurementBatch:
        """Predicts all rows and measures the most promising."""
        predicted = self._predictor.batch(graph, cluster, device)
        keys = [key_of(graph, cluster, row) for row in device]
        rows = self._most_promising(predicted, keys)
        missing = [row for row in rows if self._journal.find(keys[row]) is None]
        for number, measurement in measured_each(self._runtime, graph, cluster, device[missing]):
            self._journal.append(graph, cluster, Measured(device=device[missing[number]].copy(), measurement=measurement))
        for row in rows:
            self._take(keys[row], float(predicted.step_time_s[row]))
        return self._answer(predicted, keys)

    def state(self) -> dict[Key, float | None]:
        """What was measured in this run, in order, with measured over predicted time: for a snapshot, beside the journal."""
        return {key: self._ratios.get(key) for key in self._measured}

    def restore(self, state: Mapping[Key, float | None]) -> None:
        """Goes on from `state()` of a run with this journal. Raises `InputError` when the journal lacks one of its measurements."""
        self._measured.clear()
        self._ratios.clear()
        for key, ratio in state.items():
            measured = self._journal.find(key)
            if measured is None:
                raise InputError(
                    f"the journal lacks the measurement {key[:12]} that the snapshot relies on; put the journal of that run beside it"
                )
            self._measured[key] = measured
            if ratio is not None:
                self._ratios[key] = ratio

    def _most_promising(self, predicted: MeasurementBatch, keys: list[Key]) -> list[int]:
        objective_s = predicted.objective_s(self._objective)
        first_rows = {key: row for row, key in reversed(list(enumerate(keys)))}
        rows = [row for key, row in first_rows.items() if predicted.status[row] == Status.OK and key not in self._measured]
        return sorted(rows, key=lambda row: (objective_s[row], row))[: self._measured_per_batch]

    def _take(self, key: Key, predicted_s: float) -> None:
        measured = self._journal.find(key)
        assert measured is not None, "each row was measured"
        self._measured[key] = measured
        if measured.measurement.status == Status.OK and predicted_s > 0:
            self._ratios[key] = measured.measurement.step_time_s / predicted_s

    def _answer(self, predicted: MeasurementBatch, keys: list[Key]) -> MeasurementBatch:
        correction = self.correction
        rows: list[Measurement] = []
        for row, key in enumerate(keys):
            if key in self._measured:
                rows.append(self._measured[key].measurement)
            else:
                rows.append(predicted[row].scaled(correction))
        return stack(rows)
