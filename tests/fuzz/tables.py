"""Changes of graph files that know Parquet: values, nulls, columns, types, metadata, encodings, and runs that stand for millions of values.

The tables are written anew, so that checksums and, where the graph is one, its sha256 are right; bytes of the file are changed, too.
"""

import io
from collections.abc import Sequence
from random import Random
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from gdp.errors import InputError
from gdp.graph import Graph
from tests.fuzz.mutant import Files, Mutant
from tests.fuzz.octets import mutated_bytes

_NUMBERS = (
    0,
    1,
    -1,
    -2,
    2,
    3,
    7,
    127,
    2**31 - 1,
    2**53 + 1,
    2**57,
    2**60,
    2**60 + 1,
    2**62,
    2**63 - 1,
    -(2**31),
    -(2**63),
    0.5,
    1e308,
    float("nan"),
    float("inf"),
)
_TEXTS = ("", "x", "a\0b", "\ud7ff", "x" * 100_000, "control", "float32", "../x", "\n", "op0")
_PER_OP = ("op_type", "name", "module_path", "flops", "accessed_bytes", "param_bytes", "temp_bytes", "phase", "colocation_group")


def graph_file_mutant(samples: Sequence[Files], rng: Random) -> Mutant:
    """A changed graph file."""
    data = rng.choice(samples)["graph.parquet"]
    if rng.randrange(10) < 3:
        changed, how = mutated_bytes(data, rng)
        return Mutant(files={"graph.parquet": changed}, how=how)
    if rng.randrange(10) == 0:
        # The footer, where everything is declared.
        length = int.from_bytes(data[-8:-4], "little") + 8
        changed, how = mutated_bytes(data[-length:-8], rng)
        return Mutant(
            files={"graph.parquet": data[:-length] + changed + len(changed).to_bytes(4, "little") + b"PAR1"}, how=f"footer: {how}"
        )
    file = pq.ParquetFile(io.BytesIO(data))
    table, metadata = file.read(), dict(file.metadata.metadata or {})
    rows, schema = table.to_pylist(), table.schema.remove_metadata()
    wrong, how = False, "encoded in another way"
    choice = rng.randrange(10)
    if choice < 6:
        wrong, how = _changed_value(rows, rng)
        if rows and rng.randrange(4):
            _named_anew(rows)
            wrong = False
    elif choice == 6:
        wrong, how, schema = _changed_schema(rows, schema, rng)
    elif choice == 7:
        how = _repeated(rows, rng)
    elif choice == 8:
        key = rng.choice((b"gdp_graph_schema", b"gdp_num_graphs"))
        metadata[key] = rng.choice((b"", b"2", b"0", b"-1", b"1 ", b"9" * 400, b"\xff"))
        wrong, how = True, f"{key.decode()} is {metadata[key][:10]!r}"
        if (key == b"gdp_graph_schema" and metadata[key] == b"1") or metadata[key] == str(len(rows)).encode():
            wrong = False
    try:
        changed = _written(rows, schema, metadata, rng)
    except (pa.ArrowException, OverflowError, ValueError, TypeError, UnicodeError):
        changed, how, wrong = data, "nothing: such a table cannot be written", False
    return Mutant(files={"graph.parquet": changed}, how=how, wrong=wrong)


def _changed_value(rows: list[dict[str, Any]], rng: Random) -> tuple[bool, str]:
    """Changes one value, which makes the stored sha256 wrong unless the value is one that it does not name."""
    row = rng.choice(rows)
    name = rng.choice([key for key in row if row[key] or key == "measured_time_s"])
    values = row[name]
    if not isinstance(values, list):
        row[name] = rng.choice((None, -1, 0, 2**62, "", "x", "f" * 64))
        return name != "source" or row[name] is None, f"{name} is {row[name]!r}"
    how = rng.randrange(6)
    place = rng.randrange(len(values)) if values else 0
    if how == 0 or not values:
        row[name] = rng.choice((None, [], [*values, *values], [None]))
        return row[name] is None or (name != "measured_time_s" or row[name] == [None]), f"{name} as a whole"
    if how == 1:
        values[place] = None
        return True, f"a null in {name}"
    if how == 2:
        del values[place]
        return name != "measured_time_s", f"{name} one shorter"
    if how == 3:
        values.insert(place, values[place])
        return True, f"{name} one longer"
    if name == "tensor_shape":
        values[place] = rng.choice(([], [0], [-1], [-2], [2**60], [2**62], [1] * 64, [1] * 65, [None]))
    elif name == "measured_time_s":
        seconds = [rng.choice((0.0, 1e-3, -1.0, float("nan"), float("inf"), 1e300)) for _ in row["op_type"]]
        values[place] = {"device_kind": rng.choice(("cpu", "", "x" * 300)), "seconds": rng.choice((seconds, [], seconds[1:], None))}
        return False, "measured_time_s"
    elif isinstance(values[place], str):
        values[place] = rng.choice(_TEXTS)
    else:
        values[place] = rng.choice(_NUMBERS)
        if how == 5 and len(values) > 1:
            values[place] = rng.choice(values)
    return False, f"{name}[{place}] is {str(values[place])[:20]}"


def _changed_schema(rows: list[dict[str, Any]], schema: pa.Schema, rng: Random) -> tuple[bool, str, pa.Schema]:
    number = rng.randrange(len(schema))
    name = schema.names[number]
    match rng.randrange(5):
        case 0:
            return True, f"no column {name}", schema.remove(number)
        case 1:
            return True, f"a column more, {name}2", schema.append(pa.field(f"{name}2", schema.field(number).type))
        case 2:
            order = list(range(len(schema)))
            rng.shuffle(order)
            return False, "columns in another order", pa.schema([schema.field(place) for place in order])
        case 3:
            kind = rng.choice(
                (
                    pa.string(),
                    pa.int64(),
                    pa.list_(pa.string()),
                    pa.list_(pa.int16()),
                    pa.list_(pa.float32()),
                    pa.list_(pa.list_(pa.int64())),
                    pa.null(),
                )
            )
            for row in rows:
                row[name] = None
            return True, f"{name} of type {kind}", schema.set(number, pa.field(name, kind))
        case _:
            del rows[rng.randrange(len(rows)) :]
            return False, f"{len(rows)} rows", schema


def _repeated(rows: list[dict[str, Any]], rng: Random) -> str:
    """Few bytes in the file, many values in memory."""
    row = rng.choice(rows)
    count = rng.choice((10_000, 200_000, 1_000_000))
    name = rng.choice((*_PER_OP, "edge_tensor", "edge_consumer", "tensor_bytes", "tensor_dtype"))
    value: Any = row[name][0] if row[name] else 0
    row[name] = [value] * count
    if rng.randrange(2):
        row["num_ops"] = rng.choice((count, 5_000_000, 5_000_001))
    return f"{name} of {count} values"


def _named_anew(rows: list[dict[str, Any]]) -> None:
    """Gives every row that is a graph the sha256 of what it holds now."""
    for row in rows:
        try:
            row["sha256"] = _graph(row).sha256
        except (InputError, TypeError, ValueError, OverflowError, KeyError, AttributeError):
            continue


def _graph(row: dict[str, Any]) -> Graph:
    whole = {"flops": np.float64, "phase": np.int8}
    narrow = ("colocation_group", "tensor_producer", "edge_tensor", "edge_consumer")
    fields: dict[str, Any] = {}
    for name, value in row.items():
        if name in ("sha256", "num_ops"):
            continue
        if name in ("op_type", "name", "module_path", "tensor_dtype"):
            fields[name] = tuple(value)
        elif name == "tensor_shape":
            fields[name] = tuple(tuple(shape) for shape in value)
        elif name == "measured_time_s":
            fields[name] = {each["device_kind"]: np.array(each["seconds"], np.float64) for each in value}
        elif name == "source":
            fields[name] = value
        else:
            fields[name] = np.array(value, whole.get(name, np.int32 if name in narrow else np.int64))
    return Graph(**fields)


def _written(rows: list[dict[str, Any]], schema: pa.Schema, metadata: dict[bytes, bytes], rng: Random) -> bytes:
    metadata.pop(b"ARROW:schema", None)
    if metadata.get(b"gdp_num_graphs", b"").isdigit() and rng.randrange(4):
        metadata[b"gdp_num_graphs"] = str(len(rows)).encode() if len(metadata[b"gdp_num_graphs"]) < 9 else metadata[b"gdp_num_graphs"]
    table = pa.Table.from_pylist(rows, schema=schema.with_metadata(metadata))
    stream = io.BytesIO()
    pq.write_table(
        table,
        stream,
        store_schema=False,
        compression=rng.choice(("zstd", "zstd", "none", "snappy", "gzip")),
        use_dictionary=rng.choice((True, True, False)),
        data_page_version=rng.choice(("1.0", "1.0", "2.0")),
        write_page_checksum=rng.choice((True, True, False)),
        row_group_size=rng.choice((16, 1)),
        data_page_size=rng.choice((2**20, 100)),
    )
    return stream.getvalue()
