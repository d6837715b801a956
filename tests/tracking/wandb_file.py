"""Reads the file that W&B writes offline: a LevelDB log (32 KiB blocks; checksum, length, kind before each piece) of protocol buffers."""

import dataclasses
import json
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any


@dataclasses.dataclass(frozen=True, kw_only=True)
class Artifact:
    """A version of what a run left behind: its kind, its files and their sizes, what it was made from."""

    name: str
    kind: str
    aliases: list[str]
    metadata: dict[str, str]
    sizes_bytes: dict[str, int]


@dataclasses.dataclass(frozen=True, kw_only=True)
class OfflineRun:
    """All that an offline file holds."""

    config: dict[str, Any]
    history: list[dict[str, Any]]
    """one dictionary a call of `log`, W&B's own names left out."""
    axes: dict[str, str]
    """what the numbers of a name, or of a pattern of names, are drawn against."""
    summaries: dict[str, str]
    artifacts: list[Artifact]
    summary: dict[str, Any]
    ended: bool

    def numbers(self) -> list[dict[str, float]]:
        """Those rows that are numbers."""
        return [row for row in self.history if all(isinstance(value, (int, float, str)) for value in row.values())]

    def media(self, name: str) -> list[dict[str, Any]]:
        """What was logged under a name that is no number."""
        return [row[name] for row in self.history if isinstance(row.get(name), dict)]


def read_offline_run(folder: Path) -> OfflineRun:
    """The only offline run below a run folder."""
    (path,) = folder.glob("wandb/offline-run-*/*.wandb")
    config: dict[str, Any] = {}
    summary: dict[str, Any] = {}
    history, artifacts, axes, summaries, ended = [], [], {}, {}, False
    for record in _records(path):
        kind = record.WhichOneof("record_type")
        if kind == "run":
            config |= {item.key: json.loads(item.value_json) for item in record.run.config.update}
        elif kind == "config":
            config |= {item.key or "/".join(item.nested_key): json.loads(item.value_json) for item in record.config.update}
        elif kind == "history":
            history.append(_row(record.history.item))
        elif kind == "metric":
            name = record.metric.name or record.metric.glob_name
            axes[name] = record.metric.step_metric
            summaries[name] = next((way for way in ("min", "max") if getattr(record.metric.summary, way)), "last")
        elif kind == "summary":
            summary |= {item.key: json.loads(item.value_json) for item in record.summary.update if item.key}
        elif kind == "artifact":
            artifacts.append(_artifact(record.artifact))
        ended = ended or kind == "exit"
    return OfflineRun(config=config, history=history, axes=axes, summaries=summaries, artifacts=artifacts, summary=summary, ended=ended)


def table_rows(folder: Path, table: dict[str, Any]) -> list[dict[str, Any]]:
    """The rows of a logged table, from the file that the offline run keeps of it."""
    (path,) = folder.glob(f"wandb/offline-run-*/files/{table['path']}")
    data = json.loads(path.read_text())
    return [dict(zip(data["columns"], row, strict=True)) for row in data["data"]]


def _row(items: Any) -> dict[str, Any]:
    row: dict[str, Any] = {}
    for item in items:
        name, value = item.key or item.nested_key[0], json.loads(item.value_json)
        if name.startswith("_"):
            continue
        if len(item.nested_key) > 1:
            row.setdefault(name, {})[item.nested_key[1]] = value
        else:
            row[name] = value
    return row


def _artifact(record: Any) -> Artifact:
    return Artifact(
        name=record.name,
        kind=record.type,
        aliases=list(record.aliases),
        metadata=json.loads(record.metadata) if record.metadata else {},
        sizes_bytes={item.path: item.size for item in record.manifest.contents},
    )


def _records(path: Path) -> Iterator[Any]:
    from wandb.proto import wandb_internal_pb2

    data, position, whole = path.read_bytes(), 7, b""
    while position + 7 <= len(data):
        if 32768 - position % 32768 < 7:
            position += 32768 - position % 32768
            continue
        _, length, kind = struct.unpack("<IHB", data[position : position + 7])
        whole += data[position + 7 : position + 7 + length]
        position += 7 + length
        if kind in (1, 4):  # whole, last
            record = wandb_internal_pb2.Record()
            record.ParseFromString(whole)
            yield record
            whole = b""
