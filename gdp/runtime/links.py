"""Links between this machine's devices: transfers of many sizes are timed, and a latency and a bandwidth fitted to them.

Between two sets of cores a tensor passes by reference. What that costs is timed as it happens in a step: from the moment when one core has written a tensor until another one,
which waited for it, has read it through, less the time the reader takes over a tensor that it wrote itself. With a GPU at one end it is what a
step does there, too (streams.py): a copy through pinned memory of the host, which a host that sends fills first.

`seconds = latency + bytes / bandwidth` is fitted by least squares, with neither below zero. An error counts as a share of what was timed, for a hand-over of the whole time
until the tensor was read: small transfers count as much as large ones, and a small difference of two long reads counts little. Of the trials of one size the lower quartile
counts: other programs' load makes trials longer, never shorter.
"""

import dataclasses
import os
import threading
from collections.abc import Sequence
from queue import SimpleQueue
from time import perf_counter

import numpy as np
import torch

from gdp.errors import InputError
from gdp.runtime.streams import Streams

_SIZES = tuple(4**power for power in range(5, 13))
"""1 KiB to 16 MiB."""

_LEAST_LATENCY_S = 1e-9
_MOST_BYTES_PER_S = 1e13
"""Beyond it a bandwidth cannot be told from no cost at all."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Link:
    """A fitted link, and what it was fitted to."""

    latency_s: float
    bandwidth_bytes_per_s: float
    num_bytes: tuple[int, ...]
    seconds: tuple[float, ...]
    """of a transfer of so many bytes, as measured."""
    median_error: float
    """of the fit, as a share of what was timed."""


def fit_link(num_bytes: Sequence[int], seconds: Sequence[float], timed_s: Sequence[float] | None = None) -> Link:
    """The latency and bandwidth that explain `seconds` best; their errors count as shares of `timed_s`, positive, or of themselves."""
    sizes, times = np.array(num_bytes, np.float64), np.array(seconds, np.float64)
    scale = times if timed_s is None else np.array(timed_s, np.float64)
    rows, target = np.stack([1 / scale, sizes / scale], axis=1), times / scale
    both = np.linalg.lstsq(rows, target, rcond=None)[0]
    alone = [np.eye(2)[column] * max(0.0, float(rows[:, column] @ target / (rows[:, column] @ rows[:, column]))) for column in (0, 1)]
    possible = [each for each in (both, *alone) if (each >= 0).all()]
    latency_s, seconds_per_byte = min(possible, key=lambda each: float(((rows @ each - target) ** 2).sum()))
    return Link(
        latency_s=max(float(latency_s), _LEAST_LATENCY_S),
        bandwidth_bytes_per_s=1 / max(float(seconds_per_byte), 1 / _MOST_BYTES_PER_S),
        num_bytes=tuple(num_bytes),
        seconds=tuple(seconds),
        median_error=float(np.median(np.abs(rows @ np.array([latency_s, seconds_per_byte]) - target))),
    )


def core_link(first: Sequence[int], second: Sequence[int], *, sizes: Sequence[int] = _SIZES, num_trials: int = 40) -> Link:
    """The link from the cores `first` to the cores `second`. Raises `InputError` when this process may not use one of the two."""
    added_s, timed_s = zip(*(_hand_over_s(first, second, size, num_trials) for size in sizes), strict=True)
    return fit_link(sizes, added_s, timed_s)


def copy_link(source: torch.device, destination: torch.device, *, sizes: Sequence[int] = _SIZES, num_trials: int = 20) -> Link:
    """The link of copies between two devices of which one at least is a GPU."""
    return fit_link(sizes, [_copy_s(source, destination, size, num_trials) for size in sizes])


def _hand_over_s(first: Sequence[int], second: Sequence[int], num_bytes: int, num_trials: int) -> tuple[float, float]:
    """Lower quartiles of what a hand-over adds to the reading of a tensor, and of all the time until it is read."""
    handed: SimpleQueue[float | None] = SimpleQueue()
    wanted: SimpleQueue[bool] = SimpleQueue()
    sent, own, read = (torch.zeros(num_bytes // 4) for _ in range(3))
    timed_s: list[float] = []
    own_s: list[float] = []
    failures: list[BaseException] = []

    def write() -> None:
        try:
            _keep_to(first)
            for trial in range(num_trials):
                if not wanted.get():
                    return
                sent.fill_(trial)
                handed.put(perf_counter())
        except BaseException as error:  # an error in a thread is the caller's to see, and the other thread is not to wait for this one
            failures.append(error)
            handed.put(None)

    def take() -> None:
        try:
            _keep_to(second)
            for trial in range(num_trials):
                own.fill_(trial)
                begin = perf_counter()
                torch.add(own, 1.0, out=read)
                own_s.append(perf_counter() - begin)
                wanted.put(True)
                written = handed.get()
                if written is None:
                    return
                torch.add(sent, 1.0, out=read)
                timed_s.append(perf_counter() - written)
        except BaseException as error:
            failures.append(error)
            wanted.put(False)

    threads_before = torch.get_num_threads()
    threads = [threading.Thread(target=write, daemon=True), threading.Thread(target=take, daemon=True)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    torch.set_num_threads(threads_before)
    if failures:
        raise failures[0]
    until_read_s, own_read_s = float(np.quantile(timed_s, 0.25)), float(np.quantile(own_s, 0.25))
    return max(until_read_s - own_read_s, 0.0), until_read_s


def _keep_to(cores: Sequence[int]) -> None:
    """This thread runs on `cores` alone, and torch's operators in it on as many threads."""
    try:
        os.sched_setaffinity(0, cores)
    except OSError as error:
        raise InputError(f"cannot run on the cores {list(cores)}: {error.strerror}; name cores that this process may use") from error
    torch.set_num_threads(len(cores))


@torch.inference_mode()
def _copy_s(source: torch.device, destination: torch.device, num_bytes: int, num_trials: int) -> float:
    """Lower quartile of a transfer as a step makes it (streams.py), from ordinary memory of a host that sends, until the values are there."""
    values = torch.ones(num_bytes, dtype=torch.uint8, device=source)
    streams = Streams((source, destination))
    for gpu in {device for device in (source, destination) if device.type == "cuda"}:
        torch.cuda.synchronize(gpu)
    trials_s: list[float] = []
    for _ in range(num_trials + 2):
        begin = perf_counter()
        message = streams.send(((0, values),), 0, 1)
        assert message.ready is not None
        message.ready.synchronize()
        trials_s.append(perf_counter() - begin)
    return float(np.quantile(trials_s[2:], 0.25))
