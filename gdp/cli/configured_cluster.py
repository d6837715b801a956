"""The cluster that a Hydra configuration holds."""

import tempfile
from pathlib import Path
from typing import Any

import yaml

from gdp.cli.machine import resolve_cluster
from gdp.cluster import Cluster, read_cluster, write_cluster
from gdp.errors import InputError


def configured_cluster(group: dict[str, Any] | None, source: str | None, *, kept: Path | None) -> Cluster | None:
    """The cluster that `source` names (`local`, a YAML file), else that of the group `cluster`, with the command line's changes; `None` where neither is given.

    `kept` is the `cluster.yaml` of a run that continues: it must not probe the machine anew, because no two probes agree to the last digit.
    """
    if source == "local" and kept is not None and kept.is_file():
        return read_cluster(kept)
    if source is None and group is None:
        return None
    with tempfile.TemporaryDirectory(prefix="gdp-") as folder:
        path = Path(folder) / "cluster.yaml"
        if source is not None:
            cluster = resolve_cluster(source)
            if source != "local":
                return cluster
            write_cluster(path, cluster)  # as a run that continues will read it
        else:
            path.write_text(yaml.safe_dump(group, sort_keys=False, allow_unicode=True), encoding="utf-8")
        try:
            return read_cluster(path)
        except InputError as error:
            raise InputError(str(error).replace(f"the cluster file {path}", "the cluster of the configuration")) from error
