"""Names of devices of this machine: sets of CPU cores, and GPUs. What a TensorFlow worker reads here needs no torch."""

import os

from gdp.errors import InputError


def cores_in(name: str) -> tuple[int, ...]:
    """The cores that the name of a set lists: `cpu:0`, `cpu:0-3`, `cpu:0,2`. Raises `InputError` for names of any other form."""
    kind, _, numbers = name.partition(":")
    cores: list[int] = []
    for part in numbers.split(","):
        first, dash, last = part.partition("-")
        if kind != "cpu" or not first.isdecimal() or not (last if dash else first).isdecimal() or len(part) > 15:
            raise InputError(
                f"{name!r} is not a device that programs run on: name sets of cores like 'cpu:0' or 'cpu:0-3', or 'cuda:0'; "
                "devices that are only simulated have no real timing"
            )
        cores += range(int(first), min(int(last or first), int(first) + 4096) + 1)
    return tuple(cores)


def cores_of(name: str) -> tuple[int, ...]:
    """The cores of the CPU device `name`; none for `cuda:i`.

    Raises `InputError` for any other name, and for cores or GPUs that this process may not use, as torch counts GPUs.
    """
    kind, _, number = name.partition(":")
    if kind == "cuda" and number.isdecimal():
        import torch

        if int(number) >= torch.cuda.device_count():
            raise InputError(
                f"device {name!r} is not there: this machine has {torch.cuda.device_count()} CUDA devices; choose among its own"
            )
        return ()
    cores, allowed = cores_in(name), os.sched_getaffinity(0)
    if not cores or len(set(cores)) != len(cores) or not set(cores) <= allowed:
        raise InputError(
            f"device {name!r} does not name distinct cores of those that this process may use, {sorted(allowed)}; choose among them"
        )
    return cores
