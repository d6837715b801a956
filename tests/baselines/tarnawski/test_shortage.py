"""Why no split fits: closed forms, and agreement with all splits."""

import dataclasses

import numpy as np
import pytest
from hypothesis import given, settings

from gdp.baselines.tarnawski.cost import max_load_s
from gdp.baselines.tarnawski.shortage import why_nothing_fits
from gdp.baselines.tarnawski.solve import solve_latency, solve_max_load
from gdp.capture.tarnawski_instance import TarnawskiInstance
from gdp.errors import InputError
from tests.baselines.tarnawski.instances import all_splits, instances


def _instance(sizes: list[float], colours: list[int], *, accelerators: int, memory_bytes: float) -> TarnawskiInstance:
    count = len(sizes)
    return TarnawskiInstance(
        source="sizes",
        num_accelerators=accelerators,
        num_cpus=0,
        accelerator_memory_bytes=memory_bytes,
        node_id=np.arange(10, 10 + count),
        cpu_time_s=np.ones(count),
        accelerator_time_s=np.ones(count),
        runs_on_accelerator=np.ones(count, np.bool_),
        backward=np.zeros(count, np.bool_),
        colour=np.array(colours, np.int32),
        size_bytes=np.array(sizes),
        transfer_s=np.zeros(count),
        edge_from=np.zeros(0, np.int32),
        edge_to=np.zeros(0, np.int32),
    )


@pytest.mark.parametrize(
    ("sizes", "colours", "says"),
    [
        ([1.0, 9.0], [-1, -1], "node 11 of the instance 'sizes' takes 9 bytes, but an accelerator holds 6: 3 bytes too much"),
        (
            [4.0, 4.0],
            [0, 0],
            "the 2 nodes of one colour with node 10 of the instance 'sizes' take 8 bytes, but an accelerator holds 6: 2 bytes too much",
        ),
        ([5.0, 5.0, 4.0], [-1, -1, -1], "take 14 bytes, but its 2 accelerators hold 12 together (6 each): 2 bytes too much"),
        ([4.0, 4.0, 4.0], [-1, -1, -1], "one takes 8 bytes or more, but it holds 6: 2 bytes too much"),
    ],
)
def test_it_says_by_how_much_and_where(sizes: list[float], colours: list[int], says: str) -> None:
    instance = _instance(sizes, colours, accelerators=2, memory_bytes=6.0)
    said = why_nothing_fits(instance, time_limit_s=10.0)
    assert said is not None and says in said
    generator = np.random.default_rng(0)
    with pytest.raises(InputError, match="bytes too much; give accelerators more memory"):
        solve_max_load(instance, contiguous=True, time_limit_s=10.0, evaluations=10, generator=generator)
    with pytest.raises(InputError, match="bytes too much"):
        solve_latency(instance, subgraphs_per_accelerator=1, time_limit_s=10.0, evaluations=10, generator=generator, solver="highs")
    assert why_nothing_fits(dataclasses.replace(instance, num_cpus=1), time_limit_s=10.0) is None


@given(instances(max_nodes=5))
@settings(deadline=None, max_examples=60)
def test_it_agrees_with_all_splits(instance: TarnawskiInstance) -> None:
    runs = any(np.isfinite(max_load_s(instance, split)) for split in all_splits(instance))
    assert (why_nothing_fits(instance, time_limit_s=10.0) is None) == runs
