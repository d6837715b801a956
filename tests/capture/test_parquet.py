"""Graph files: round trips are equal, and a wrong file is an InputError that says what is wrong."""

import dataclasses
import tempfile
import tracemalloc
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gdp.capture import parquet
from gdp.capture.parquet_pages import count_values
from gdp.errors import InputError
from gdp.graph import Graph
from tests.strategies import graphs


def small() -> Graph:
    return Graph(
        op_type=("input", "aten.mm.default", "aten.relu.default"),
        name=("x", "mm", "relu"),
        module_path=("", "a", "a.b"),
        flops=np.array([0.0, 16.0, 4.0]),
        accessed_bytes=np.array([0, 48, 32]),
        param_bytes=np.array([0, 16, 0]),
        temp_bytes=np.zeros(3, np.int64),
        phase=np.zeros(3, np.int8),
        colocation_group=np.array([-1, 0, 0], np.int32),
        tensor_producer=np.array([0, 1, 2], np.int32),
        tensor_bytes=np.array([16, 16, 16]),
        tensor_shape=((2, 2), (2, -1), ()),
        tensor_dtype=("float32", "bfloat16", "float32"),
        edge_tensor=np.array([0, 1], np.int32),
        edge_consumer=np.array([1, 2], np.int32),
        source="tests, a graph by hand",
        measured_time_s={"cpu": np.array([0.0, 1e-3, 2e-3])},
    )


def assert_equal(one: Graph, other: Graph) -> None:
    for field in dataclasses.fields(Graph):
        if field.name == "measured_time_s":
            assert list(one.measured_time_s) == list(other.measured_time_s)
            for kind, seconds in one.measured_time_s.items():
                np.testing.assert_array_equal(seconds, other.measured_time_s[kind], strict=True)
        elif isinstance(getattr(one, field.name), np.ndarray):
            np.testing.assert_array_equal(getattr(one, field.name), getattr(other, field.name), strict=True)
        else:
            assert getattr(one, field.name) == getattr(other, field.name)
    assert one.sha256 == other.sha256


@given(st.lists(graphs(), max_size=3))
@settings(deadline=None, max_examples=50)
def test_what_was_written_is_read(some: list[Graph]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "graphs.parquet"
        parquet.write_graphs(path, some)
        read = parquet.read_graphs(path)
    assert len(read) == len(some)
    for one, other in zip(some, read, strict=True):
        assert_equal(one, other)


def test_one_graph(tmp_path: Path) -> None:
    path = tmp_path / "one.parquet"
    parquet.write_graphs(path, [small()])
    assert_equal(parquet.read_graph(path), small())
    parquet.write_graphs(path, [small(), small()])
    with pytest.raises(InputError, match="holds 2 graphs"):
        parquet.read_graph(path)


@pytest.fixture(scope="module")
def whole_file(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    path = tmp_path_factory.mktemp("whole") / "graphs.parquet"
    parquet.write_graphs(path, [small()])
    return path.read_bytes()


@given(st.data())
@settings(deadline=None, max_examples=400, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_a_damaged_file_is_refused_or_says_the_same(whole_file: bytes, tmp_path: Path, data: st.DataObject) -> None:
    path = tmp_path / "damaged.parquet"
    content = bytearray(whole_file)
    if data.draw(st.booleans()):
        for place in data.draw(st.lists(st.integers(0, len(content) - 1), min_size=1, max_size=3)):
            content[place] ^= 1 << data.draw(st.integers(0, 7))
    else:
        first, last = sorted((data.draw(st.integers(0, len(content))), data.draw(st.integers(0, len(content)))))
        del content[first:last]
    path.write_bytes(content)
    try:
        read = parquet.read_graphs(path)
    except InputError as error:
        assert str(path) in str(error)
    else:
        assert len(read) == 1
        assert_equal(read[0], small())


def test_a_damaged_page_is_noticed_where_no_hash_covers_it(whole_file: bytes, tmp_path: Path) -> None:
    place = whole_file.find(b"graph by hand")
    assert place > 0
    path = tmp_path / "damaged.parquet"
    path.write_bytes(whole_file[:place] + b"G" + whole_file[place + 1 :])
    with pytest.raises(InputError, match="damaged"):
        parquet.read_graphs(path)


def test_missing_file_and_other_formats(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="cannot read the graph file .*No such file"):
        parquet.read_graphs(tmp_path / "none.parquet")
    with pytest.raises(InputError, match="the graph file .* is not a regular file"):
        parquet.read_graphs(tmp_path)
    (tmp_path / "text.parquet").write_text("not Parquet")
    with pytest.raises(InputError, match="damaged or is not Parquet"):
        parquet.read_graphs(tmp_path / "text.parquet")
    pq.write_table(pa.table({"a": [1]}), tmp_path / "other.parquet")
    with pytest.raises(InputError, match="no graph file"):
        parquet.read_graphs(tmp_path / "other.parquet")


def write(path: Path, table: pa.Table, *, version: str = "1", count: int = 1) -> None:
    """Writes a table as a graph file, whatever is in it."""
    with pq.ParquetWriter(path, table.schema, store_schema=False) as writer:
        writer.write_table(table)
        writer.add_key_value_metadata({"gdp_graph_schema": version, "gdp_num_graphs": str(count)})


def changed(tmp_path: Path, column: str, values: list[object], of: pa.DataType | None = None) -> Path:
    """A graph file with one column put in place of what it had."""
    path = tmp_path / "changed.parquet"
    parquet.write_graphs(path, [small()])
    table = pq.read_table(path)
    field = table.schema.field(column)
    array = pa.array(values, of or field.type)
    table = table.set_column(table.schema.get_field_index(column), pa.field(column, array.type), array)
    write(path, table)
    return path


@pytest.mark.parametrize(
    ("column", "values", "message"),
    [
        ("flops", [[0.0, float("nan"), 4.0]], "flops of op 'mm'"),
        ("flops", [[0.0, float("inf"), 4.0]], "flops of op 'mm'"),
        ("flops", [[0.0, None, 4.0]], "flops in graph 0 of .* is null or holds a null"),
        ("flops", [None], "is null or holds a null"),
        ("flops", [[0.0, 16.0]], "3 values of op_type but 2 of flops"),
        ("accessed_bytes", [[0, -48, 32]], "accessed_bytes of op 'mm'"),
        ("phase", [[0, 0, 9]], "phase"),
        ("colocation_group", [[-1, 0, -2]], "colocation group below"),
        ("name", [["x", "x", "relu"]], "both named 'x'"),
        ("tensor_producer", [[0, 1, 3]], "producer outside"),
        ("tensor_shape", [[[2, 2], [2, -7], []]], "extent outside"),
        ("tensor_shape", [[[2, 2], None, []]], "holds a null"),
        ("edge_tensor", [[0, 7]], "tensor outside"),
        ("edge_consumer", [[1, 1]], "goes backwards"),
        ("source", [None], "source in graph 0 of .* is null"),
        ("measured_time_s", [[{"device_kind": "cpu", "seconds": [0.0, 1.0]}]], "3 values of op_type but 2 of measured_time_s"),
        ("measured_time_s", [[{"device_kind": None, "seconds": [0.0, 1.0, 1.0]}]], "holds a null"),
        ("measured_time_s", [[{"device_kind": "cpu", "seconds": [0.0] * 3}] * 2], "names a device kind twice"),
        ("op_type", [["input", "aten.mm.default", "aten.tanh.default"]], "not the content that its sha256 names"),
        ("num_ops", [2], "3 values of op_type, and num_ops is 2"),
        ("num_ops", [-1], r"num_ops in the graph file .* is \[-1\]"),
        ("num_ops", [None], r"num_ops in the graph file .* is \[None\]"),
        ("sha256", [None], "sha256 in graph 0 of .* is null"),
    ],
)
def test_wrong_values_are_named(tmp_path: Path, column: str, values: list[object], message: str) -> None:
    path = changed(tmp_path, column, values)
    with pytest.raises(InputError, match=message) as error:
        parquet.read_graphs(path)
    assert str(path) in str(error.value)


def test_wrong_columns_are_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="column 'flops' of the graph file .* is list<element: float>; it must be"):
        parquet.read_graphs(changed(tmp_path, "flops", [[1.0]], pa.list_(pa.field("element", pa.float32()))))
    path = tmp_path / "columns.parquet"
    parquet.write_graphs(path, [small()])
    table = pq.read_table(path)
    write(path, table.rename_columns(["flop" if name == "flops" else name for name in table.column_names]))
    with pytest.raises(InputError, match=r"no column 'flops' \(is it 'flop'\?\)"):
        parquet.read_graphs(path)
    write(path, table.append_column("more", pa.array([1])))
    with pytest.raises(InputError, match="a column 'more' that no graph has"):
        parquet.read_graphs(path)
    write(path, table, version="2")
    with pytest.raises(InputError, match="schema version '2'"):
        parquet.read_graphs(path)
    write(path, table, count=2)
    with pytest.raises(InputError, match="has 1 rows"):
        parquet.read_graphs(path)


def test_huge_files_are_refused_before_they_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = changed(tmp_path, "num_ops", [parquet.MAX_OPS + 1])
    with pytest.raises(InputError, match=r"num_ops in the graph file .* is \[5000001\]"):
        parquet.read_graphs(path)
    parquet.write_graphs(path, [small()])
    monkeypatch.setattr(parquet, "MAX_FILE_BYTES", 100)
    with pytest.raises(InputError, match="at most 100 are read"):
        parquet.read_graphs(path)


def test_all_values_are_counted(tmp_path: Path) -> None:
    path = tmp_path / "table.parquet"
    pq.write_table(pa.table({"a": [[1, 2], [3], [4, 5, 6]], "b": [0.5, 0.25, 0.125]}), path, use_dictionary=False, data_page_size=1)
    assert count_values(path) == 6 + 3
    pq.write_table(pa.table({"a": ["x"] * 1000}), path, row_group_size=500)
    assert count_values(path) == 1000 + 2  # and each row group's dictionary of one
    parquet.write_graphs(path, [small()])
    metadata = pq.read_metadata(path).row_group(0)
    assert count_values(path) >= sum(metadata.column(number).num_values for number in range(metadata.num_columns))


def test_a_small_file_of_many_values_is_refused_before_it_is_read(tmp_path: Path) -> None:
    path = changed(tmp_path, "flops", [np.zeros(3_000_000)])
    assert path.stat().st_size < 100_000
    before = pa.total_allocated_bytes()
    with pytest.raises(InputError, match="values for 3 ops, which no graph needs"):
        parquet.read_graphs(path)
    assert pa.total_allocated_bytes() - before < 2**20


def test_a_long_string_that_stands_for_many_is_refused_before_it_is_copied(tmp_path: Path) -> None:
    count = 2_000
    path = changed(tmp_path, "op_type", [["x" * 100_000] * count])
    assert path.stat().st_size < 100_000
    tracemalloc.start()
    with pytest.raises(InputError, match="200000[0-9]* bytes in all, which no graph needs"):
        parquet.read_graph(path)
    assert tracemalloc.get_traced_memory()[1] < 100_000_000
    tracemalloc.stop()


def test_text_that_is_no_text_is_refused(tmp_path: Path) -> None:
    path = changed(tmp_path, "source", ["text"])
    table = pq.read_table(path)
    wrong = pa.StringArray.from_buffers(1, pa.py_buffer(np.array([0, 2], np.int32).tobytes()), pa.py_buffer(b"\xff\xfe"))
    write(path, table.set_column(table.schema.get_field_index("source"), "source", wrong))
    with pytest.raises(InputError, match="damaged"):
        parquet.read_graphs(path)
