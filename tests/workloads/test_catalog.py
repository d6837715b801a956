"""The catalog: names, splits by family, and that the workloads build, the same graph every time."""

from collections import defaultdict

import pytest

from gdp.errors import InputError
from gdp.workloads.catalog import CATALOG, Workload, workload

# One of each family: the smaller ones.
FIRST_OF_FAMILY = list({entry.family: entry for entry in reversed(CATALOG)}.values())


def test_names_are_unique_and_found() -> None:
    assert len({entry.name for entry in CATALOG}) == len(CATALOG)
    for entry in CATALOG:
        assert workload(entry.name) is entry


def test_a_family_is_in_one_split_and_every_split_has_some() -> None:
    splits = defaultdict(set)
    for entry in CATALOG:
        splits[entry.family].add(entry.split)
    assert all(len(found) == 1 for found in splits.values())
    assert set.union(*splits.values()) == {"pretraining", "validation", "hold-out"}
    assert {entry.framework for entry in CATALOG if entry.split == "hold-out"} == {"pytorch", "tensorflow", "synthetic"}


@pytest.mark.parametrize("entry", FIRST_OF_FAMILY, ids=lambda entry: entry.name)
def test_one_of_every_family_builds(entry: Workload) -> None:
    graph = entry.build()
    assert graph.num_ops >= 10
    assert graph.flops.sum() > 0


def test_a_name_is_one_graph_and_different_names_are_different_graphs() -> None:
    small = [entry for entry in CATALOG if entry.framework == "synthetic" and "-60-" in entry.name]
    drawn = [entry.build().sha256 for entry in small]
    assert len(set(drawn)) == len(drawn)
    assert drawn == [entry.build().sha256 for entry in small]


def test_an_unknown_name_gets_a_hint() -> None:
    with pytest.raises(InputError, match="did you mean 'inception-v3-training'"):
        workload("inception-v3-trainin")
    with pytest.raises(InputError, match="one of each family: layered-60-inference-0"):
        workload("?")


def test_a_program_is_the_graph_s() -> None:
    from gdp.capture.torch import capture

    for entry in CATALOG:
        if entry.program is not None:
            assert capture(*entry.program()).graph.sha256 == entry.build().sha256
