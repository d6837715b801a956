"""The cluster that a Hydra configuration holds."""

from pathlib import Path
from typing import Any

import yaml

from gdp.atomic_file import write_text
from gdp.cli.machine import resolve_cluster
from gdp.cluster import Cluster, read_cluster, write_cluster


def configured_cluster(group: dict[str, Any] | None, source: str | None, *, folder: Path) -> Cluster | None:
    """The cluster that `source` names (`local`, a YAML file), else that of the group `cluster`, with the command line's changes; `None` where neither is given.

    It is kept as `cluster.yaml` in the run's folder: a run that continues must not probe the machine anew, because no two probes agree to the last digit.
    """
    path = folder / "cluster.yaml"
    if source is not None:
        if not path.exists():
            write_cluster(path, resolve_cluster(source))
    elif group is not None:
        write_text(path, yaml.safe_dump(group, sort_keys=False, allow_unicode=True))
    else:
        return None
    return read_cluster(path)
