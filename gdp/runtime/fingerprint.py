"""What measured times hold for: the devices' models, drivers and clocks, and the libraries that ran on them."""

import importlib.metadata
import os
import platform
import re
from collections.abc import Mapping, Sequence
from pathlib import Path

import psutil
import torch

_LIBRARIES = ("torch", "tensorflow", "numpy")


def fingerprint(device_names: Sequence[str]) -> dict[str, str]:
    """By what it is: processor, its clock and cores, memory, system, libraries, and each GPU among the devices with its driver and clock. What cannot be found out is left out."""
    found = {
        "processor": _processor(),
        "processor clock": _processor_clock(),
        "cores": str(os.cpu_count()),
        "memory": f"{psutil.virtual_memory().total / 2**30:.1f} GiB",
        "system": f"{platform.system()} {platform.release()}",
        "python": platform.python_version(),
        **{library: _version(library) for library in _LIBRARIES},
    }
    for name in device_names:
        number = re.fullmatch(r"cuda:(\d{1,4})", name)  # a profile of others may name anything
        if number is not None and int(number[1]) < torch.cuda.device_count():
            found |= {f"{name} {what}": value for what, value in gpu(int(number[1])).items()}
    return {what: value for what, value in found.items() if value}


def changes(then: Mapping[str, str], now: Mapping[str, str]) -> list[str]:
    """What is different now, each as `what: then, now ...`; clocks, which vary from hour to hour, only when they are 10 % apart."""
    return [
        f"{what}: {then.get(what, 'unknown')}, now {now.get(what, 'unknown')}"
        for what in sorted(then.keys() | now.keys())
        if then.get(what) != now.get(what) and not (what.endswith("clock") and _near(then.get(what, ""), now.get(what, "")))
    ]


def _near(first: str, second: str) -> bool:
    try:
        clocks = [float(text.partition(" ")[0]) for text in (first, second)]
    except ValueError:
        return False
    return max(clocks) <= 1.1 * min(clocks)


def _processor() -> str:
    lines = _lines(Path("/proc/cpuinfo"))
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), platform.machine())


def _processor_clock() -> str:
    """The highest clock of the first core that the system allows, else the present one."""
    top = _lines(Path("/sys/devices/system/cpu/cpu0/cpufreq/cpuinfo_max_freq"))
    if top:
        return f"{int(top[0]) / 1000:.0f} MHz"
    lines = _lines(Path("/proc/cpuinfo"))
    return next((f"{float(line.partition(':')[2]):.0f} MHz" for line in lines if line.startswith("cpu MHz")), "")


def gpu(number: int) -> dict[str, str]:
    """What the GPU is that CUDA numbers so in this process."""
    properties = torch.cuda.get_device_properties(number)
    driver = _lines(Path("/proc/driver/nvidia/version"))
    clock_hz = (
        getattr(properties, "clock_rate", 0) * 1000
    )  # kHz; not every build of torch has it, and torch.cuda.clock_rate needs NVML's package
    return {
        "model": properties.name,
        "memory": f"{properties.total_memory / 2**30:.1f} GiB",
        "driver": driver[0].removeprefix("NVRM version:").strip() if driver else "",
        "clock": f"{clock_hz / 1e6:.0f} MHz" if clock_hz else "",
        "CUDA": torch.version.cuda or "",
    }


def _lines(path: Path) -> list[str]:
    try:
        return path.read_text().splitlines()
    except OSError:
        return []


def _version(library: str) -> str:
    try:
        return importlib.metadata.version(library)
    except importlib.metadata.PackageNotFoundError:
        return ""
