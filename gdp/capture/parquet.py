"""Graphs as Parquet files: one row a graph, one list column a field, zstd (format: docs/formats.md).

A file may come from anywhere, so reading trusts nothing in it: what it declares is bounded before it is read, pages carry checksums, columns and types are exactly those of the
schema, nothing is null, every graph is checked as `Graph` checks any, and its sha256 must be the stored one.
"""

import difflib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from gdp.atomic_file import replacing
from gdp.bounded_file import check_bounded
from gdp.capture.parquet_pages import count_values
from gdp.errors import InputError
from gdp.graph import MAX_BYTES, Graph

MAX_OPS = 5_000_000
"""The most ops that one file may hold."""

MAX_FILE_BYTES = 4 * 2**30
"""The most bytes that one file may have, and may declare to have when uncompressed."""

MAX_VALUES = 120_000_000
"""The most numbers and strings that one file may hold: a graph of `MAX_OPS` with some twenty values an op. A file for fewer ops may hold a thousand an op."""

MAX_MEAN_STRING_BYTES = 1000
"""Of the strings of a file: a dictionary lets a few bytes stand for many long ones."""

_VERSION_KEY, _VERSION, _COUNT_KEY = b"gdp_graph_schema", b"1", b"gdp_num_graphs"
_STRINGS = ("op_type", "name", "module_path", "tensor_dtype")
_NUMBERS = {
    "flops": pa.float64(),
    "accessed_bytes": pa.int64(),
    "param_bytes": pa.int64(),
    "temp_bytes": pa.int64(),
    "phase": pa.int8(),
    "colocation_group": pa.int32(),
    "tensor_producer": pa.int32(),
    "tensor_bytes": pa.int64(),
    "edge_tensor": pa.int32(),
    "edge_consumer": pa.int32(),
}


def _list(of: pa.DataType) -> pa.DataType:
    return pa.list_(pa.field("element", of))


_MEASURED = pa.struct([pa.field("device_kind", pa.string()), pa.field("seconds", _list(pa.float64()))])
_SCHEMA = pa.schema(
    [
        pa.field("sha256", pa.string()),
        pa.field("source", pa.string()),
        pa.field("num_ops", pa.int64()),
        *(pa.field(name, _list(pa.string())) for name in _STRINGS),
        *(pa.field(name, _list(of)) for name, of in _NUMBERS.items()),
        pa.field("tensor_shape", _list(_list(pa.int64()))),
        pa.field("measured_time_s", _list(_MEASURED)),
    ]
)


def write_graphs(path: Path, graphs: Sequence[Graph]) -> None:
    """Writes `graphs` to `path`, whole or not at all; `read_graphs` reads equal ones back."""
    table = pa.Table.from_pylist([_row(graph) for graph in graphs], schema=_SCHEMA)
    with (
        replacing(path) as temporary,
        pq.ParquetWriter(temporary, _SCHEMA, compression="zstd", store_schema=False, write_page_checksum=True) as writer,
    ):
        writer.write_table(table, row_group_size=16)
        writer.add_key_value_metadata({_VERSION_KEY.decode(): _VERSION.decode(), _COUNT_KEY.decode(): str(len(graphs))})


def read_graphs(path: Path) -> list[Graph]:
    """The graphs in `path`, in order. Raises `InputError` when there is no such file or anything in it is wrong."""
    table = _read_table(path)
    return [_graph(table, row, path) for row in range(table.num_rows)]


def read_graph(path: Path) -> Graph:
    """The graph in a file that holds just one. Raises `InputError` as `read_graphs` does, and when there are more or none."""
    table = _read_table(path)
    if table.num_rows != 1:
        raise InputError(f"{path} holds {table.num_rows} graphs where one is wanted; name a file with a single graph")
    return _graph(table, 0, path)


def _row(graph: Graph) -> dict[str, Any]:
    return {
        "sha256": graph.sha256,
        "source": graph.source,
        "num_ops": graph.num_ops,
        **{name: getattr(graph, name) for name in (*_STRINGS, *_NUMBERS)},
        "tensor_shape": graph.tensor_shape,
        "measured_time_s": [{"device_kind": kind, "seconds": seconds} for kind, seconds in graph.measured_time_s.items()],
    }


def _read_table(path: Path) -> pa.Table:
    advice = "check the name, or write one with `gdp.capture.parquet.write_graphs`"
    check_bounded(path, what="the graph file", advice=advice, max_bytes=MAX_FILE_BYTES)
    try:
        num_values = count_values(path)
        if num_values > MAX_VALUES:
            raise InputError(f"the graph file {path} holds {num_values} values; at most {MAX_VALUES} are read: split it")
        with pq.ParquetFile(path, page_checksum_verification=True, thrift_container_size_limit=10**6) as file:
            _check_declared(file, path, num_values)
        with pq.ParquetFile(
            path,
            page_checksum_verification=True,
            thrift_container_size_limit=10**6,
            read_dictionary=[f"{name}.list.element" for name in _STRINGS],
        ) as file:
            table = file.read(use_threads=False)
            if table.num_rows != file.metadata.num_rows:
                raise InputError(
                    f"the graph file {path} declares {file.metadata.num_rows} graphs and holds {table.num_rows}; fetch it again"
                )
            table.validate(full=True)
            _check_strings(table, path)
            return table
    except InputError:
        raise
    except Exception as error:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise InputError(f"the graph file {path} is damaged or is not Parquet ({reason}); fetch or capture it again") from error


def _check_declared(file: pq.ParquetFile, path: Path, num_values: int) -> None:
    """Everything that can be known without reading the data."""
    metadata = file.metadata.metadata or {}
    version = metadata.get(_VERSION_KEY)
    if version is None:
        raise InputError(f"{path} is Parquet, but no graph file: its metadata has no {_VERSION_KEY.decode()}; name a file that `gdp` wrote")
    if version != _VERSION:
        raise InputError(
            f"the graph file {path} has schema version {version[:20].decode(errors='replace')!r}, and this gdp reads {_VERSION.decode()}; update gdp, or capture it again"
        )
    if metadata.get(_COUNT_KEY) != str(file.metadata.num_rows).encode():
        raise InputError(
            f"the graph file {path} has {file.metadata.num_rows} rows, which is not what {_COUNT_KEY.decode()} in its metadata says; fetch it again"
        )
    names = file.schema_arrow.names
    for missing in [name for name in _SCHEMA.names if name not in names]:
        close = difflib.get_close_matches(missing, [name for name in names if name not in _SCHEMA.names], n=1)
        raise InputError(
            f"the graph file {path} has no column {missing!r}{f' (is it {close[0]!r}?)' if close else ''}; the columns are {', '.join(_SCHEMA.names)}"
        )
    for unknown in [name for number, name in enumerate(names) if name not in _SCHEMA.names or name in names[:number]]:
        raise InputError(
            f"the graph file {path} has a column {unknown!r} that no graph has, or has it twice; the columns are {', '.join(_SCHEMA.names)}"
        )
    for name in _SCHEMA.names:
        found, wanted = file.schema_arrow.field(name).type, _SCHEMA.field(name).type
        if found != wanted:
            raise InputError(f"column {name!r} of the graph file {path} is {found}; it must be {wanted}")
    size_bytes = sum(max(file.metadata.row_group(number).total_byte_size, 0) for number in range(file.metadata.num_row_groups))
    if size_bytes > MAX_FILE_BYTES:
        raise InputError(f"the graph file {path} declares {size_bytes} bytes; at most {MAX_FILE_BYTES} are read: split it")
    declared = file.read(columns=["num_ops"], use_threads=False).column("num_ops").to_pylist()
    if any(count is None or not 0 < count <= MAX_OPS for count in declared) or sum(declared) > MAX_OPS:
        raise InputError(
            f"num_ops in the graph file {path} is {declared[:20]}; graphs have at least one op, and at most {MAX_OPS} are read: split it"
        )
    if num_values > 1000 * sum(declared) + 100_000:
        raise InputError(
            f"the graph file {path} holds {num_values} values for {sum(declared)} ops, which no graph needs; fetch or capture it again"
        )


def _check_strings(table: pa.Table, path: Path) -> None:
    """While every string is still held once, however often it is used."""
    num_strings = num_bytes = 0
    for name in _STRINGS:
        for chunk in table.column(name).chunks:
            strings = chunk.flatten()
            length = pc.binary_length(strings.dictionary).to_numpy(zero_copy_only=False)
            used = strings.indices.drop_null().to_numpy()
            num_strings += len(used)
            num_bytes += int(length[used].sum(dtype=np.float64))
    if num_bytes > MAX_MEAN_STRING_BYTES * num_strings + 1_000_000:
        raise InputError(
            f"the graph file {path} holds {num_strings} strings of {num_bytes} bytes in all, which no graph needs; fetch or capture it again"
        )


def _graph(table: pa.Table, row: int, path: Path) -> Graph:
    where = f"graph {row} of {path}"
    measured = _values(table, "measured_time_s", row, where)
    kinds = measured.field("device_kind").to_pylist()
    if len(set(kinds)) != len(kinds):
        raise InputError(f"measured_time_s in {where} names a device kind twice: {kinds}; give each one list of seconds")
    shapes = _values(table, "tensor_shape", row, where)
    extents = shapes.flatten().to_numpy(zero_copy_only=False)
    if len(extents) and not (extents.min() >= -1 and extents.max() <= MAX_BYTES):
        raise InputError(f"tensor_shape in {where} has an extent outside -1..2**60; -1 stands for an unknown extent")
    fields: dict[str, Any] = {name: _strings(_values(table, name, row, where)) for name in _STRINGS}
    fields |= {name: _numbers(_values(table, name, row, where)) for name in _NUMBERS}
    declared = table.column("num_ops")[row].as_py()
    if declared != len(fields["op_type"]):
        raise InputError(f"{where} has {len(fields['op_type'])} values of op_type, and num_ops is {declared}; there must be as many")
    seconds = {kind: _numbers(values.values) for kind, values in zip(kinds, measured.field("seconds"), strict=True)}
    for name, values in {
        **fields,
        "tensor_shape": shapes,
        **{f"measured_time_s[{kind!r}]": values for kind, values in seconds.items()},
    }.items():
        count = "tensor_producer" if name.startswith("tensor_") else "edge_tensor" if name.startswith("edge_") else "op_type"
        if len(values) != len(fields[count]):
            raise InputError(f"{where} has {len(fields[count])} values of {count} but {len(values)} of {name}; there must be as many")
    try:
        graph = Graph(
            **fields,
            tensor_shape=tuple(tuple(shape) for shape in shapes.to_pylist()),
            source=_text(table, "source", row, where),
            measured_time_s=seconds,
        )
    except InputError as error:
        raise InputError(f"{where} is wrong: {error}") from error
    if graph.sha256 != _text(table, "sha256", row, where):
        raise InputError(f"{where} has not the content that its sha256 names; the file was changed: fetch or capture it again")
    return graph


def _text(table: pa.Table, name: str, row: int, where: str) -> str:
    value = table.column(name)[row].as_py()
    if value is None:
        raise InputError(f"{name} in {where} is null; every field needs a value")
    return str(value)


def _values(table: pa.Table, name: str, row: int, where: str) -> pa.Array:
    """The list in one cell, without nulls at any depth."""
    values = table.column(name)[row].values
    if values is None or _has_null(values):
        raise InputError(f"{name} in {where} is null or holds a null; every field needs a value")
    return values


def _strings(values: pa.DictionaryArray) -> tuple[str, ...]:
    known = values.dictionary.to_pylist()
    return tuple(known[number] for number in values.indices.to_pylist())


def _has_null(values: pa.Array) -> bool:
    if values.null_count or (pa.types.is_dictionary(values.type) and values.dictionary.null_count):
        return True
    if pa.types.is_struct(values.type):
        return any(_has_null(values.field(number)) for number in range(values.type.num_fields))
    return pa.types.is_list(values.type) and _has_null(values.flatten())


def _numbers(values: pa.Array) -> np.ndarray:
    return np.array(values.to_numpy(zero_copy_only=False))
