"""What pretraining draws from, against the catalog's splits."""

from gdp.learn.sources import FAMILIES
from gdp.workloads.catalog import CATALOG


def test_random_graphs_are_of_families_that_neither_validation_nor_hold_out_has() -> None:
    split = {entry.family: entry.split for entry in CATALOG}
    assert {split.get(family.__name__.replace("_", "-"), "pretraining") for family in FAMILIES} == {"pretraining"}


def test_no_family_is_in_two_splits() -> None:
    assert len({(entry.family, entry.split) for entry in CATALOG}) == len({entry.family for entry in CATALOG})
