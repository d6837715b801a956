"""Equal tasks have equal targets."""

import dataclasses

import numpy as np

from gdp.cluster import Cluster, preset
from gdp.learn.imitation import canonical

ALIKE = preset("p100x4")


def renamed(cluster: Cluster, group_device: list[int]) -> list[int]:
    return canonical(np.array(group_device), cluster).tolist()


def test_interchangeable_devices_are_numbered_as_they_are_first_used() -> None:
    assert renamed(ALIKE, [3, 3, 1, 2, 0]) == [2, 2, 0, 3, 1]  # the two of a switch are alike, the switches are not


def test_devices_of_another_kind_or_memory_keep_their_numbers() -> None:
    unequal = preset("unequal")
    assert unequal.num_devices == 2 and renamed(unequal, [1, 0, 1]) == [1, 0, 1]


def test_devices_behind_different_roots_are_not_exchanged() -> None:
    even = dataclasses.replace(ALIKE, latency_s=np.full((4, 4), 1e-5))  # now only the channels tell the switches apart
    assert renamed(even, [1, 0, 1]) == [0, 1, 0]
    assert renamed(even, [2, 0, 2]) == [2, 0, 2]
    one_root = dataclasses.replace(even, channel=np.zeros((4, 4), np.int32), channel_name=("root",))
    assert renamed(one_root, [2, 0, 2]) == [0, 1, 0]
