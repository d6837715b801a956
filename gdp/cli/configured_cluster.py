"""The cluster that a Hydra configuration holds."""

from pathlib import Path
from typing import Any

import yaml

from gdp.atomic_file import write_text
from gdp.cli.machine import resolve_cluster
from gdp.cluster import Cluster, read_cluster, write_cluster


def configured_cluster(group: dict[str, Any] | None, source: str | None, *, folder: Path) -> Cluster | None:
    """The cluster of the group `cluster`, with the command line's changes, else the one that `source` names (`local`, a YAML file); `None` where neither is given.

    It is kept as `cluster.yaml` in the run's folder: a run that continues must not probe the machine anew, because no two probes agree to the last digit.
    """
    path = folder / "cluster.yaml"
    if group is not None:
        write_text(path, yaml.safe_dump(group, sort_keys=False, allow_unicode=True))
    elif source is None:
        return None
    elif not path.exists():
        write_cluster(path, resolve_cluster(source))
    return read_cluster(path)
