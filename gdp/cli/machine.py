"""What a user may name as CLUSTER: `local`, a preset, or a YAML file."""

from pathlib import Path

from gdp.cluster import Cluster, preset, read_cluster

HELP = "`local` (this machine, probed), a preset such as p100x4, or a YAML file"


def resolve_cluster(text: str) -> Cluster:
    """The cluster that `text` names; raises `InputError` when there is none."""
    if text == "local":
        from gdp.runtime.local import core_sets, local_cluster

        return local_cluster(core_sets())
    if text.endswith((".yaml", ".yml")):
        return read_cluster(Path(text))
    return preset(text)
