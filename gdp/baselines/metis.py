"""Balanced minimum cuts by METIS (Karypis and Kumar, SIAM J. Sci. Comput. 20, 1998), as the placement papers use it.

METIS sees an undirected graph: it balances seconds (or, by `bytes`, the memory of parameters and tensors) and minimises bytes cut, and knows neither order nor latency.
"""

import ctypes
import dataclasses
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Literal

import numpy as np
import pymetis
from jaxtyping import Float64, Int32

from gdp.baselines.quotient import Quotient, quotient, resident_bytes
from gdp.baselines.score import scores
from gdp.baselines.search_result import SearchResult
from gdp.capture.coarsening import Grouping, coarsen
from gdp.cluster import Cluster
from gdp.errors import InputError
from gdp.graph import Graph
from gdp.measurement import Objective, Runtime
from gdp.placement import Origin, Placement
from gdp.runtime.roofline import op_time_s

_VERTEX_UNITS = 1_000_000
"""METIS weighs in 32-bit integers: the whole graph weighs this much."""
_EDGE_UNITS = 500_000_000
_IMBALANCE = 0.05


@dataclasses.dataclass(frozen=True, kw_only=True)
class Metis:
    """One partition into as many parts as there are devices."""

    seed: int = 0
    imbalance: float = _IMBALANCE
    """the heaviest part may weigh this fraction more than its share."""
    weight: Literal["cost", "bytes"] = "cost"
    """what is balanced: seconds in proportion to speed, or bytes in proportion to memory."""

    def __post_init__(self) -> None:
        _check_imbalance(self.imbalance)

    def __call__(self, graph: Graph, cluster: Cluster) -> Placement:
        grouping = coarsen(graph)
        problem = _Problem(graph, cluster, grouping, self.weight)
        with _silent():
            parts = problem.partition(seed=self.seed, imbalance=self.imbalance, num_parts=cluster.num_devices, recursive=False)
        return Placement(
            device=grouping.expand(parts), origin=Origin(placer="metis" if self.weight == "cost" else "metis-by-bytes", seed=self.seed)
        )


@dataclasses.dataclass(frozen=True, kw_only=True)
class MetisManyTimes:
    """The best of many partitions: random seeds, imbalances from 0.1 % to 100 %, part counts from two to all devices, both of METIS's schemes.

    The first partition is that of `Metis`, the last one has a single part, on the fastest device. An anytime method: `search` gives the best time after each evaluation.
    """

    runtime: Runtime
    evaluations: int
    seed: int
    objective: Objective = "step_time"

    def __post_init__(self) -> None:
        if self.evaluations < 1:
            raise InputError(f"MetisManyTimes is given {self.evaluations} evaluations; it needs at least 1")

    def __call__(self, graph: Graph, cluster: Cluster) -> Placement:
        return self.search(graph, cluster).placement

    def search(self, graph: Graph, cluster: Cluster) -> SearchResult:
        devices = metis_partitions(graph, cluster, count=self.evaluations, seed=self.seed)
        if self.evaluations > 1:
            devices[-1] = int(op_time_s(graph, cluster).sum(axis=0).argmin())
        score = np.concatenate(
            [
                scores(self.runtime.batch(graph, cluster, devices[start : start + 64]), cluster, objective=self.objective)
                for start in range(0, self.evaluations, 64)
            ]
        )
        origin = Origin(placer="metis-many-times", seed=self.seed, evaluations=self.evaluations)
        return SearchResult.from_scores(Placement(device=np.array(devices[int(score.argmin())]), origin=origin), score.tolist())


def metis_partitions(graph: Graph, cluster: Cluster, *, count: int, seed: int) -> Int32[np.ndarray, "count ops"]:
    """Random partitions, see `MetisManyTimes`; row 0 is that of `Metis(seed=seed)`, and fewer rows are the first ones of more."""
    grouping = coarsen(graph)
    problem = _Problem(graph, cluster, grouping, "cost")
    generator = np.random.default_rng(seed)
    with _silent():
        rows = [problem.partition(seed=seed, imbalance=_IMBALANCE, num_parts=cluster.num_devices, recursive=False)]
        while len(rows) < count:
            rows.append(
                problem.partition(
                    seed=int(generator.integers(2**31)),
                    imbalance=float(np.exp(generator.uniform(np.log(0.001), 0.0))),
                    num_parts=int(generator.integers(min(2, cluster.num_devices), cluster.num_devices + 1)),
                    recursive=bool(generator.integers(2)),
                )
            )
    return grouping.expand(np.stack(rows))


@contextmanager
def _silent() -> Iterator[None]:
    """Keeps METIS's complaints about parts that stay empty off the terminal: it writes them from C to the process's standard output."""
    libc = ctypes.CDLL(None)
    sys.stdout.flush()
    libc.fflush(None)
    kept, nowhere = os.dup(1), os.open(os.devnull, os.O_WRONLY)
    try:
        os.dup2(nowhere, 1)
        yield
    finally:
        libc.fflush(None)
        os.dup2(kept, 1)
        os.close(kept)
        os.close(nowhere)


class _Problem:
    """The weighted undirected graph that METIS partitions."""

    def __init__(self, graph: Graph, cluster: Cluster, grouping: Grouping, weight: Literal["cost", "bytes"]) -> None:
        whole = quotient(graph, cluster, grouping)
        self.num_groups = grouping.num_groups
        self.xadj, self.adjacency, self.edge_weight = _undirected(whole, self.num_groups)
        if weight == "cost":
            size = whole.time_s.mean(axis=1)
            self.strength: Float64[np.ndarray, " devices"] = 1.0 / np.maximum(whole.time_s.sum(axis=0), 1e-30)
        else:
            size = resident_bytes(graph, grouping).astype(np.float64)
            self.strength = np.maximum(cluster.memory_bytes, 1).astype(np.float64)
        self.vertex_weight = np.rint(size / max(float(size.sum()), 1e-30) * _VERTEX_UNITS).astype(np.int32)

    def partition(self, *, seed: int, imbalance: float, num_parts: int, recursive: bool) -> Int32[np.ndarray, " groups"]:
        num_parts = min(num_parts, self.num_groups)
        if num_parts == 1:
            return np.full(self.num_groups, int(self.strength.argmax()), np.int32)
        chosen = np.sort(np.argsort(-self.strength, kind="stable")[:num_parts])
        share = self.strength[chosen] / self.strength[chosen].sum()
        parts = pymetis.part_graph(
            num_parts,
            pymetis.CSRAdjacency(self.xadj, self.adjacency),
            vweights=self.vertex_weight,
            eweights=self.edge_weight,
            tpwgts=(share / share.sum()).tolist(),
            recursive=recursive,
            options=pymetis.Options(seed=seed % 2**31, ufactor=max(1, round(1000 * imbalance))),
        ).vertex_part
        return np.asarray(chosen[np.asarray(parts)], np.int32)


def _undirected(whole: Quotient, num_groups: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Compressed rows of the symmetric graph: bytes in both directions, scaled to positive 32-bit weights."""
    low, high = np.minimum(whole.link_from, whole.link_to), np.maximum(whole.link_from, whole.link_to)
    pair, position = np.unique(low.astype(np.int64) * num_groups + high, return_inverse=True)
    bytes_between = np.bincount(position, whole.link_bytes.astype(np.float64), minlength=len(pair))
    weight = np.maximum(1, np.rint(bytes_between / max(1.0, float(bytes_between.sum())) * _EDGE_UNITS)).astype(np.int32)
    first, second = np.divmod(pair, num_groups)
    source, target = np.concatenate([first, second]), np.concatenate([second, first])
    order = np.lexsort((target, source))
    xadj = np.concatenate([[0], np.cumsum(np.bincount(source, minlength=num_groups))]).astype(np.int32)
    return xadj, target[order].astype(np.int32), np.concatenate([weight, weight])[order]


def _check_imbalance(imbalance: float) -> None:
    if not 0 <= imbalance <= 10:
        raise InputError(f"METIS is given the imbalance {imbalance}; it must be from 0 to 10, a fraction of a part's share")
