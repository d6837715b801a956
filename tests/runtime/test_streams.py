"""The order of a transfer's steps on its streams, as a machine without GPUs can tell it: CUDA's calls are recorded and not made."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch
from torch.overrides import TorchFunctionMode

from gdp.runtime.streams import Streams

CPU, GPU, OTHER = torch.device("cpu"), torch.device("cuda:0"), torch.device("cuda:1")


class Log(TorchFunctionMode):
    """What is done, in order, each entry with the stream it is done on; values stay on the host, whatever device they are sent to."""

    def __init__(self) -> None:
        super().__init__()
        self.entries: list[tuple[Any, ...]] = []
        self.streams: list[FakeStream] = []
        """the present one is the last."""
        self.strides: list[tuple[tuple[int, ...], bool]] = []
        """of every value that was copied to another device, and whether a conjugation of it was put off."""

    def add(self, what: str, *details: object) -> None:
        self.entries.append((what, *details))

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs, on = kwargs or {}, str(self.streams[-1]) if self.streams else "none"
        if func is torch.empty_like and kwargs.get("pin_memory"):
            self.add("pinned")
            return torch.empty_like(args[0])
        if func is torch.Tensor.copy_:
            self.add("copy", on, "ahead" if kwargs.get("non_blocking") else "waiting")
            self.strides.append((args[1].stride(), args[1].is_conj()))
            return func(*args)
        if func is torch.Tensor.to:
            self.add("copy to", str(args[1]), on, "ahead" if kwargs.get("non_blocking") else "waiting")
            self.strides.append((args[0].stride(), args[0].is_conj()))
            return args[0].clone()
        if func is torch.Tensor.clone:
            self.add("dense", on)
        return func(*args, **kwargs)


class FakeStream:
    __class__ = torch.cuda.Stream  # to isinstance it is one

    def __init__(self, log: Log, device: torch.device) -> None:
        self.log, self.device, self.name = log, device, ""
        self.fails = False

    def __str__(self) -> str:
        return self.name

    def wait_stream(self, other: "FakeStream") -> None:
        self.log.add("wait", str(self), "for", str(other))

    def synchronize(self) -> None:
        self.log.add("synchronize", str(self))
        if self.fails:
            raise RuntimeError("CUDA error: an illegal memory access was encountered")


class FakeEvent:
    __class__ = torch.cuda.Event

    def __init__(self, log: Log) -> None:
        self.log, self.recorded_on = log, ""

    def record(self, stream: FakeStream) -> None:
        self.recorded_on = str(stream)
        self.log.add("event", str(stream))


@pytest.fixture
def log(monkeypatch: pytest.MonkeyPatch) -> Iterator[Log]:
    log = Log()

    @contextmanager
    def present(stream: FakeStream) -> Iterator[None]:
        log.streams.append(stream)
        yield
        log.streams.pop()

    monkeypatch.setattr(torch.cuda, "Stream", lambda device: FakeStream(log, device))
    monkeypatch.setattr(torch.cuda, "Event", lambda: FakeEvent(log))
    monkeypatch.setattr(torch.cuda, "stream", present)
    monkeypatch.setattr(torch.Tensor, "record_stream", lambda _, stream: log.add("keep for", str(stream)))
    with log:
        yield log


def streams_of(devices: list[torch.device]) -> Streams:
    """Streams with names to tell them by."""
    streams = Streams(devices)
    for number, stream in streams.compute.items():
        stream.name = f"computing {number}"  # type: ignore[attr-defined]
    for (source, destination), stream in streams._copy.items():
        stream.name = f"copying {source} to {destination}"  # type: ignore[attr-defined]
    return streams


def test_a_gpu_sends_to_the_host_through_pinned_memory_after_it_has_computed(log: Log) -> None:
    value = torch.arange(6.0).view(2, 3)
    message = streams_of([GPU, CPU]).send([(4, value), (5, 7)], 0, 1)
    assert log.entries == [
        ("wait", "copying 0 to 1", "for", "computing 0"),
        ("keep for", "copying 0 to 1"),
        ("pinned",),
        ("copy", "copying 0 to 1", "ahead"),
        ("event", "copying 0 to 1"),
    ]
    (slot, sent), number = message.values
    assert (slot, number) == (4, (5, 7)) and torch.equal(sent, value) and sent is not value
    assert isinstance(message.ready, FakeEvent) and message.ready.recorded_on == "copying 0 to 1"


def test_the_host_sends_to_a_gpu_through_pinned_memory_and_the_value_is_kept_for_the_receiver(log: Log) -> None:
    value = torch.arange(3.0).expand(2, 3)
    ((_, sent),) = streams_of([CPU, GPU]).send([(0, value)], 0, 1).values
    assert log.entries == [
        ("pinned",),
        ("copy", "copying 0 to 1", "waiting"),
        ("copy to", "cuda:0", "copying 0 to 1", "ahead"),
        ("keep for", "computing 1"),
        ("event", "copying 0 to 1"),
    ]
    assert torch.equal(sent, value)


def test_a_gpu_sends_to_another_one(log: Log) -> None:
    streams = streams_of([GPU, OTHER])
    ((_, sent),) = streams.send([(0, torch.ones(2, 4, 3).transpose(1, 2))], 0, 1).values
    assert log.entries == [
        ("wait", "copying 0 to 1", "for", "computing 0"),
        ("keep for", "copying 0 to 1"),
        ("copy to", "cuda:1", "copying 0 to 1", "ahead"),
        ("keep for", "computing 1"),
        ("event", "copying 0 to 1"),
    ]
    assert streams._copy[0, 1].device == GPU and sent.stride() == (12, 1, 3)  # dense in another order: nothing to do


@pytest.mark.parametrize("destination", [CPU, OTHER])
@pytest.mark.parametrize(
    ("value", "stride"),
    [
        (torch.arange(96.0).view(2, 4, 3, 4).to(memory_format=torch.channels_last)[:, 1:3], (24, 1, 8, 2)),
        (torch.arange(3.0).expand(2, 3), (3, 1)),
        (torch.tensor([1 + 2j, 3 - 4j]).conj(), (1,)),
    ],
)
def test_what_has_gaps_is_made_dense_before_its_copy_and_on_its_stream(
    log: Log, value: torch.Tensor, stride: tuple[int, ...], destination: torch.device
) -> None:
    ((_, sent),) = streams_of([GPU, destination]).send([(0, value)], 0, 1).values
    assert log.strides == [(stride, False)]
    assert torch.equal(sent, value) and sent.stride() == stride
    kinds = [entry[0] for entry in log.entries]
    assert kinds[:2] == ["wait", "keep for"] and kinds[-1] == "event"
    assert all(entry == ("dense", "copying 0 to 1") for entry in log.entries if entry[0] == "dense")
    assert ("dense" in kinds) == (not value.is_conj())  # whose resolving is a kernel of the present stream by itself


def test_settling_waits_for_all_that_a_device_has_begun_even_after_an_error(log: Log) -> None:
    streams = streams_of([GPU, CPU, OTHER])
    streams.compute[0].fails = True  # type: ignore[attr-defined]
    streams.settle(0)
    streams.settle(1)
    assert log.entries == [
        ("synchronize", name) for name in ("computing 0", "copying 0 to 1", "copying 0 to 2", "copying 1 to 0", "copying 1 to 2")
    ]
