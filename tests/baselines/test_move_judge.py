"""Local search in which somebody chooses the move that is tried."""

import numpy as np
import pytest

from gdp.baselines.local_search import LocalSearch
from gdp.cluster import preset
from gdp.runtime.simulator import Simulator
from gdp.workloads.synthetic import layered

ON = preset("p100x4")
GRAPH = layered(np.random.default_rng(0), num_ops=400, training=True)
SIMULATOR = Simulator(num_threads=1)


class Omniscient:
    """Knows every candidate's time, or its opposite."""

    def __init__(self, sign: float) -> None:
        self.sign, self.counts, self.seen = sign, [], []

    def see(self, device, timeline):
        self.seen.append((device.copy(), timeline.op_end_s.max()))

    def choose(self, candidates, removes_wait):
        assert candidates.dtype == np.int32 and removes_wait.dtype == np.bool_ and len(removes_wait) == len(candidates)
        assert (candidates != self.seen[-1][0]).any(axis=1).all()
        self.counts.append(len(candidates))
        return int((self.sign * SIMULATOR.batch(GRAPH, ON, candidates).step_time_s).argmin())


def search(judge, *, seed: int = 0, evaluations: int = 300):
    make = None if judge is None else lambda graph, cluster: judge
    return LocalSearch(runtime=SIMULATOR, predictor=SIMULATOR, evaluations=evaluations, seed=seed, judge=make).search(GRAPH, ON)


def test_who_chooses_well_gets_further_and_who_chooses_badly_less_far():
    finals = {
        name: [search(None if sign is None else Omniscient(sign), seed=seed).best_so_far_s[-1] for seed in range(3)]
        for name, sign in {"best": 1.0, "none": None, "worst": -1.0}.items()
    }
    best, none, worst = (float(np.mean(np.log(finals[name]))) for name in ("best", "none", "worst"))
    assert best < none - 0.02 and none < worst - 0.005, (best, none, worst)


def test_candidates_are_few_and_many_and_the_present_placement_is_seen():
    judge = Omniscient(1.0)
    found = search(judge, evaluations=400)
    assert min(judge.counts) == 2 and 32 < max(judge.counts) <= 64
    assert np.mean(np.array(judge.counts) < 8) == pytest.approx(0.4, abs=0.15), (
        "as many below the middle of the logarithm as above, single ones not asked for"
    )
    accepted = [seconds for _, seconds in judge.seen]
    assert found.best_so_far_s[-1] == pytest.approx(min(accepted))
    np.testing.assert_array_equal(search(Omniscient(1.0), evaluations=400).best_so_far_s, found.best_so_far_s)
