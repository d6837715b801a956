"""The cluster that a Hydra configuration holds."""

from pathlib import Path
from typing import Any

import yaml

from gdp.atomic_file import write_text
from gdp.cli.machine import resolve_cluster
from gdp.cluster import Cluster, read_cluster


def configured_cluster(group: dict[str, Any] | None, source: str | None, *, folder: Path) -> Cluster | None:
    """The cluster of the group `cluster`, with the command line's changes, or the one that `source` names (`local`, a YAML file); `None` where neither is given.

    The group's content is kept as `cluster.yaml` in the run's folder and read from there, by the reader that checks every cluster file.
    """
    if source is not None:
        return resolve_cluster(source)
    if group is None:
        return None
    path = folder / "cluster.yaml"
    write_text(path, yaml.safe_dump(group, sort_keys=False, allow_unicode=True))
    return read_cluster(path)
