"""What may be named as CLUSTER."""

from pathlib import Path

import pytest

from gdp.cli.machine import resolve_cluster
from gdp.cluster import preset, write_cluster
from gdp.errors import InputError


def test_a_cap_lowers_memory_and_nothing_else(tmp_path: Path) -> None:
    full, capped = preset("unequal"), resolve_cluster("unequal@15GiB")
    assert capped.memory_bytes.tolist() == [15 * 2**30, int(full.memory_bytes[1])] and capped.name == "unequal@15GiB"
    assert capped.bandwidth_bytes_per_s.tolist() == full.bandwidth_bytes_per_s.tolist() and capped.kinds == full.kinds
    write_cluster(tmp_path / "mine.yaml", full)
    assert resolve_cluster(f"{tmp_path}/mine.yaml@512MiB").memory_bytes.tolist() == [2**29] * 2
    assert resolve_cluster("p100x2@1.5GiB").memory_bytes.tolist() == [3 * 2**29] * 2


def test_the_path_of_a_file_may_have_an_at_sign(tmp_path: Path) -> None:
    path = tmp_path / "me@work" / "mine.yaml"
    write_cluster(path, preset("p100x2"))
    assert resolve_cluster(str(path)).num_devices == 2
    assert resolve_cluster(f"{path}@512MiB").memory_bytes.tolist() == [2**29] * 2


@pytest.mark.parametrize(
    "text", ["p100x2@", "p100x2@3", "p100x2@0GiB", "p100x2@-1GiB", "p100x2@3GB", "p100x2@1e9GiB", "p100x2@64GiB", "p10x2@3GiB"]
)
def test_anything_else_is_refused_with_what_to_do(text: str) -> None:
    with pytest.raises(InputError, match=r"such as 3GiB|name less|did you mean"):
        resolve_cluster(text)
