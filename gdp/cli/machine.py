"""What a user may name as CLUSTER: `local`, a preset, or a YAML file, with less memory where that is asked for."""

import dataclasses
import re
from pathlib import Path

from gdp.cluster import Cluster, preset, read_cluster
from gdp.errors import InputError

HELP = "`local` (this machine, probed), a preset such as p100x4, or a YAML file; `p100x4@3GiB` caps the memory of every device"

_YAML = (".yaml", ".yml")
_UNITS = {"MiB": 2**20, "GiB": 2**30}


def resolve_cluster(text: str) -> Cluster:
    """The cluster that `text` names. `NAME@3GiB` (or `MiB`) is cluster `NAME` whose devices have no more memory than that.

    Raises `InputError` when there is no such cluster, or when the cap is no size or above every device's memory.
    """
    name, at, size = text.rpartition("@")
    if not at or text.endswith(_YAML):
        return _named(text)
    cluster, most = _named(name), _bytes(size, text)
    if most > cluster.memory_bytes.max():
        raise InputError(
            f"{text!r} caps the memory at {size}, but no device of cluster {name!r} has so much "
            f"(the most is {cluster.memory_bytes.max() / 2**30:g} GiB); name less, or {name!r} alone"
        )
    devices = tuple(dataclasses.replace(device, memory_bytes=min(device.memory_bytes, most)) for device in cluster.devices)
    return dataclasses.replace(cluster, name=f"{cluster.name}@{size}", devices=devices)


def _named(text: str) -> Cluster:
    if text == "local":
        from gdp.runtime.local import default_core_sets, local_cluster

        return local_cluster(default_core_sets())
    if text.endswith(_YAML):
        return read_cluster(Path(text))
    return preset(text)


def _bytes(size: str, text: str) -> int:
    written = re.fullmatch(r"(\d{1,6}(?:\.\d{1,6})?)(MiB|GiB)", size)
    if written is None or float(written[1]) <= 0:
        raise InputError(f"{text!r} names no cluster: after the @ stands the most memory of a device, such as 3GiB or 512MiB")
    return int(float(written[1]) * _UNITS[written[2]])
