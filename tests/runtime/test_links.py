"""Fitted links: exact where the law holds, never negative, and near the law under noise."""

import os
import threading
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from gdp.errors import InputError
from gdp.runtime import links
from gdp.runtime.links import copy_link, core_link, fit_link

CORES = sorted(os.sched_getaffinity(0))
SIZES = [4**power for power in range(3, 13)]


@given(latency_s=st.floats(1e-7, 1e-3), bandwidth=st.floats(1e8, 1e11))
def test_what_follows_the_law_is_found(latency_s: float, bandwidth: float) -> None:
    link = fit_link(SIZES, [latency_s + size / bandwidth for size in SIZES])
    assert link.latency_s == pytest.approx(latency_s, rel=1e-6)
    assert link.bandwidth_bytes_per_s == pytest.approx(bandwidth, rel=1e-6)
    assert link.median_error == pytest.approx(0, abs=1e-6)


def test_noise_moves_the_fit_little() -> None:
    generator = np.random.default_rng(0)
    fits = [fit_link(SIZES, [(1e-5 + size / 1e10) * generator.lognormal(0, 0.1) for size in SIZES]) for _ in range(200)]
    assert np.median([fit.latency_s for fit in fits]) == pytest.approx(1e-5, rel=0.05)
    assert np.median([fit.bandwidth_bytes_per_s for fit in fits]) == pytest.approx(1e10, rel=0.05)
    assert np.median([fit.median_error for fit in fits]) == pytest.approx(0.07, abs=0.03)  # 0.0674 is the median of |N(0, 0.1)|


@given(st.lists(st.floats(1e-9, 10.0), min_size=2, max_size=len(SIZES)))
def test_nothing_is_negative(seconds: list[float]) -> None:
    link = fit_link(SIZES[: len(seconds)], seconds)
    assert link.latency_s > 0
    assert 0 < link.bandwidth_bytes_per_s <= 1e13


def test_a_difference_lost_in_a_long_read_counts_little() -> None:
    """The largest tensor seems to be handed over in no time: less than the noise of reading it."""
    link = fit_link([1024, 4096, 2**24], [1e-5, 1e-5, 0.0], [1.1e-5, 1.2e-5, 5e-3])
    assert link.latency_s == pytest.approx(1e-5, rel=0.01)


def test_times_that_fall_with_the_size_are_all_latency() -> None:
    link = fit_link([1000, 1_000_000], [2e-5, 1e-5])
    assert link.bandwidth_bytes_per_s == 1e13
    assert 1e-5 < link.latency_s < 2e-5


@pytest.mark.skipif(len(CORES) < 2, reason="needs two cores")
def test_cores_of_this_machine() -> None:
    before = (os.sched_getaffinity(0), torch.get_num_threads())
    link = core_link(CORES[:1], CORES[1:2], sizes=(1024, 2**20), num_trials=10)
    assert 1e-7 < link.seconds[0] < 0.1
    assert before == (os.sched_getaffinity(0), torch.get_num_threads())


@pytest.mark.parametrize("ends", [((99_999,), CORES[:1]), (CORES[:1], (99_999,)), ((99_999,), (99_999,))])
def test_cores_that_are_not_there_are_the_caller_s_to_see(ends: tuple[tuple[int, ...], tuple[int, ...]]) -> None:
    seen: list[BaseException] = []

    def measure() -> None:
        try:
            core_link(*ends, sizes=(1024, 4096), num_trials=2)
        except InputError as error:
            seen.append(error)

    thread = threading.Thread(target=measure, daemon=True)
    thread.start()
    thread.join(60.0)  # not for ever, as it once was
    assert not thread.is_alive() and "cannot run on the cores [99999]" in str(seen[0])


@pytest.mark.parametrize("fails_in", ["fill_", "add"])
def test_an_error_in_one_thread_releases_the_other(monkeypatch: pytest.MonkeyPatch, fails_in: str) -> None:
    def fail(*_: object, **__: object) -> None:
        raise MemoryError("no room")

    monkeypatch.setattr(*((torch.Tensor, "fill_") if fails_in == "fill_" else (torch, "add")), fail)
    threads = torch.get_num_threads()
    with pytest.raises(MemoryError, match="no room"):
        core_link(CORES[:1], CORES[-1:], sizes=(1024, 4096), num_trials=2)
    assert torch.get_num_threads() == threads


class SlowStreams:
    """Transfers that take no time to begin and a law's time to be there."""

    clock_s = 0.0

    def __init__(self, devices: tuple[torch.device, torch.device]) -> None:
        self.devices = devices

    def send(self, values: tuple[tuple[int, torch.Tensor], ...], source: int, destination: int) -> SimpleNamespace:
        ((_, value),) = values
        assert (self.devices[source], self.devices[destination]) == ENDS and value.device == ENDS[0] and not value.is_pinned()

        def synchronize() -> None:
            SlowStreams.clock_s += 1e-5 + value.nbytes / 1e9

        return SimpleNamespace(ready=SimpleNamespace(synchronize=synchronize))


ENDS = (torch.device("cpu"), torch.device("meta"))


def test_a_copy_is_timed_as_a_step_makes_it_until_the_values_are_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(links, "Streams", SlowStreams)
    monkeypatch.setattr(links, "perf_counter", lambda: SlowStreams.clock_s)
    link = copy_link(*ENDS)
    assert link.latency_s == pytest.approx(1e-5, rel=1e-3) and link.bandwidth_bytes_per_s == pytest.approx(1e9, rel=1e-3)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("ends", [("cpu", "cuda:0"), ("cuda:0", "cpu")])
def test_a_gpu_of_this_machine(ends: tuple[str, str]) -> None:
    link = copy_link(torch.device(ends[0]), torch.device(ends[1]))
    assert 1e-7 < link.latency_s < 1e-2
    assert 1e8 < link.bandwidth_bytes_per_s < 2e12
