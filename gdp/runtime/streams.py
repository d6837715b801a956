"""Streams of CUDA devices, and transfers from and to them that overlap with computing.

A transfer runs on a stream of its own per ordered pair of devices: it waits for the stream that computed the value, goes through pinned memory where one end is the host,
and ends with an event that the receiver waits for.
"""

from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import torch

from gdp.runtime.stages import Message


class Streams:
    """One computing stream per CUDA device, and one copying stream per ordered pair with a CUDA device; nothing on CPU devices alone."""

    def __init__(self, devices: Sequence[torch.device]) -> None:
        self._devices = devices
        self.compute = {number: torch.cuda.Stream(device) for number, device in enumerate(devices) if device.type == "cuda"}  # type: ignore[no-untyped-call]
        self._copy = {
            (i, j): torch.cuda.Stream(devices[i] if i in self.compute else devices[j])  # type: ignore[no-untyped-call]
            for i in range(len(devices))
            for j in range(len(devices))
            if i != j and (i in self.compute or j in self.compute)
        }

    def mark(self) -> torch.cuda.Event:
        """An event that tells the time on the device."""
        return torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]

    def send(self, values: Sequence[tuple[int, Any]], source: int, destination: int) -> Message:
        """Starts the transfer of (slot, value) pairs; called by the source's thread."""
        copy = self._copy[source, destination]
        if source in self.compute:
            copy.wait_stream(self.compute[source])
        with torch.cuda.stream(copy):
            sent = tuple(
                (slot, self._transfer(value, source, destination, copy) if isinstance(value, torch.Tensor) else value)
                for slot, value in values
            )
            ready = torch.cuda.Event()  # type: ignore[no-untyped-call]
            ready.record(copy)
        return Message(sent, ready)

    def settle(self, number: int) -> None:
        """Waits until what the device has begun to compute and to send has ended, well or not."""
        started = [self.compute[number]] if number in self.compute else []
        for stream in [*started, *(copy for (source, _), copy in self._copy.items() if source == number)]:
            with suppress(RuntimeError):  # an error of CUDA, which whoever failed has told
                stream.synchronize()

    def _transfer(self, value: torch.Tensor, source: int, destination: int, copy: torch.cuda.Stream) -> torch.Tensor:
        if source in self.compute:
            value.record_stream(copy)
            value = _dense(value)
        else:
            value = torch.empty_like(value, pin_memory=True).copy_(value)  # Tensor.pin_memory keeps strides, and refuses what expand made
        if destination not in self.compute:
            return torch.empty_like(value, device="cpu", pin_memory=True).copy_(value, non_blocking=True)
        sent = value.to(self._devices[destination], non_blocking=True)
        sent.record_stream(self.compute[destination])
        return sent


def _dense(value: torch.Tensor) -> torch.Tensor:
    """The value with its memory as its elements are, by kernels of the present stream: one with gaps, or with a conjugation put off, would be made so after its transfer,
    by a kernel of another stream of the destination or in memory of the host that is not pinned."""
    value = value.resolve_conj().resolve_neg()
    is_dense = torch.empty_like(value, device="meta").stride() == value.stride()
    return value if is_dense else value.clone()
