"""The scale of measured times: who is timed again, and who is the next incumbent."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from branching_net import NAMES, branching_program, core_cluster

from gdp.measurement import Status
from gdp.placement import Origin, Placement
from gdp.runtime.core_sets import cores_of
from gdp.runtime.journal import Journal, Measured
from gdp.runtime.measuring import SPREAD_S, Measuring
from gdp.runtime.restarting import Devices, RestartingWorker

CAPTURED, CLUSTER = branching_program(), core_cluster(NAMES)
GRAPH = CAPTURED.graph


class ScriptedWorker(RestartingWorker):
    """Answers each `measure` with the next of the given times of the candidate, beside 1 s of the incumbent."""

    def __init__(self, times: Sequence[Sequence[float]], *, peak_memory_bytes: Sequence[int] = (0, 0)) -> None:
        super().__init__("gdp.runtime.worker", environment={}, timeout_s=1.0)
        self.asked: list[tuple[Any, Any]] = []
        self.spread_s: list[float] = []
        self._times = iter(times)
        self._peak_memory_bytes = list(peak_memory_bytes)

    def ask_about(
        self, ops: Sequence[str], devices: Devices, request: Mapping[str, Any], *, timeout_s: float | None = None
    ) -> dict[str, Any]:
        self.asked.append((request["candidate"], request["incumbent"]))
        self.spread_s.append(request["protocol"]["spread_s"])
        assert request["protocol"]["max_time_s"] > request["protocol"]["spread_s"]
        candidate_s = list(next(self._times))
        incumbent_s = [] if request["incumbent"] is None else [1.0] * len(candidate_s)
        return {
            "candidate_s": candidate_s,
            "incumbent_s": incumbent_s,
            "busy_s": [0.1, 0.1],
            "peak_memory_bytes": self._peak_memory_bytes,
        }


SURELY, PERHAPS, NOT = [0.5] * 8, [0.7, 1.2, 0.7, 1.2, 0.7, 0.7, 0.7, 0.7], [1.2] * 8


@pytest.mark.parametrize(
    ("times", "kept_s", "replaced"),
    [
        ([SURELY, SURELY], 0.5, True),
        ([SURELY, PERHAPS], 0.7, False),
        ([SURELY, NOT], 1.2, False),
        ([PERHAPS], 0.7, False),
        ([NOT], 1.2, False),
    ],
)
def test_the_second_time_counts_and_the_incumbent_is_the_journals(
    tmp_path: Path, times: list[list[float]], kept_s: float, replaced: bool
) -> None:
    worker = ScriptedWorker([[1.0] * 8, *times, NOT])
    measuring = Measuring(worker, nodes=GRAPH.name, check_device=cores_of, protocol=None, incumbent=None)
    rows = [np.zeros(GRAPH.num_ops, np.int32), np.ones(GRAPH.num_ops, np.int32), np.arange(GRAPH.num_ops, dtype=np.int32) % 2]
    with Journal(tmp_path / "journal.jsonl") as journal:
        for row in rows[:2]:
            measurement = measuring.measure(GRAPH, CLUSTER, Placement(device=row, origin=Origin(placer="test")))
            journal.append(GRAPH, CLUSTER, Measured(device=row, measurement=measurement))
        assert measurement.step_time_s == pytest.approx(kept_s)
        measuring.measure(GRAPH, CLUSTER, Placement(device=rows[2], origin=Origin(placer="test")))
        goes_on = journal.incumbent(GRAPH, CLUSTER)
    worker.close()
    assert len(worker.asked) == 2 + len(times)
    assert worker.spread_s == [
        SPREAD_S,
        SPREAD_S,
        *[4 * SPREAD_S] * (len(times) - 1),
        SPREAD_S,
    ]  # what makes an incumbent is spread over longer
    assert worker.asked[-1][1] == rows[int(replaced)].tolist()
    assert goes_on is not None and goes_on.device.tolist() == worker.asked[-1][1]


@pytest.mark.parametrize(("beyond_bytes", "status"), [(0, Status.OK), (1, Status.OUT_OF_MEMORY)])
def test_a_placement_that_takes_more_memory_than_the_cluster_grants_is_out_of_memory(beyond_bytes: int, status: Status) -> None:
    taken = [17, CLUSTER.devices[1].memory_bytes + beyond_bytes]
    worker = ScriptedWorker([[1.0] * 8], peak_memory_bytes=taken)
    measuring = Measuring(worker, nodes=GRAPH.name, check_device=cores_of, protocol=None, incumbent=None)
    placement = Placement(device=np.ones(GRAPH.num_ops, np.int32), origin=Origin(placer="test"))
    measured = measuring.measure(GRAPH, CLUSTER, placement)
    worker.close()
    assert measured.status == status
    if status == Status.OK:
        assert measured.peak_memory_bytes.tolist() == taken
    else:
        assert measured.detail == f"it takes {2**30 + 1} bytes on device {NAMES[1]}, 1 more than there are"
