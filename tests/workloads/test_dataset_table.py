from pathlib import Path

import pytest

from gdp.bundled import bundled
from gdp.errors import InputError
from gdp.workloads.dataset_table import dataset_table, write_dataset_table


def test_the_readme_states_what_is_stored() -> None:
    assert dataset_table(bundled("datasets")) in (bundled("datasets") / "README.md").read_text(encoding="utf-8")


def test_a_row_per_graph(tmp_path: Path) -> None:
    stored = bundled("datasets") / "inception_v3_training.parquet"
    (tmp_path / stored.name).write_bytes(stored.read_bytes())
    row = dataset_table(tmp_path).splitlines()[-1]
    assert row == "| `inception_v3_training` | 13,382 | 19,991 | 1.103e+12 | 285,945,964 | tensorflow | hold-out |"


def test_the_table_is_replaced_and_the_rest_stays(tmp_path: Path) -> None:
    stored = bundled("datasets") / "inception_v3_training.parquet"
    (tmp_path / stored.name).write_bytes(stored.read_bytes())
    readme = tmp_path / "README.md"
    start, end = "<!-- table: written by python -m gdp.workloads.dataset_table -->", "<!-- end of table -->"
    readme.write_text(f"before\n{start}\nold\n{end}\nafter\n")
    write_dataset_table(tmp_path)
    once = readme.read_text()
    assert once == f"before\n{start}\n{dataset_table(tmp_path)}\n{end}\nafter\n"
    write_dataset_table(tmp_path)
    assert readme.read_text() == once


def test_what_has_no_place_is_refused(tmp_path: Path) -> None:
    (tmp_path / "README.md").write_text("nothing here\n")
    with pytest.raises(InputError, match="has no place for the table"):
        write_dataset_table(tmp_path)
    (tmp_path / "unheard_of.parquet").write_bytes(b"")
    with pytest.raises(InputError, match="named as no workload"):
        dataset_table(tmp_path)
