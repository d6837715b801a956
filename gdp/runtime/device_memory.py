"""How much of a GPU's memory a placement takes: what lies there between its steps, and the most that a step adds to it."""

from collections.abc import Iterable, Sequence
from typing import Any

import torch


def resident_bytes(values: Iterable[Any], device: torch.device) -> int:
    """Bytes on `device` behind the tensors among the values; memory that several share counts once."""
    storages = [value.untyped_storage() for value in values if isinstance(value, torch.Tensor) and value.device == device]
    return sum({storage.data_ptr(): storage.nbytes() for storage in storages}.values())


class PeakMemory:
    """What is allocated on GPUs inside of this context, at the most, beyond what was before; read `added_bytes` after it. Other devices have 0."""

    def __init__(self, devices: Sequence[torch.device]) -> None:
        self._devices = devices
        self._before = [0] * len(devices)
        self.added_bytes = [0] * len(devices)

    def __enter__(self) -> "PeakMemory":
        for number, device in enumerate(self._devices):
            if device.type == "cuda":
                torch.cuda.synchronize(device)
                torch.cuda.reset_peak_memory_stats(device)
                self._before[number] = torch.cuda.memory_allocated(device)
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is not None:
            return  # the GPU may answer no more, and what happened inside is to be told
        for number, device in enumerate(self._devices):
            if device.type == "cuda":
                torch.cuda.synchronize(device)
                self.added_bytes[number] = torch.cuda.max_memory_allocated(device) - self._before[number]
