"""What pretraining draws from, against the catalog's splits."""

from collections import Counter
from pathlib import Path

from gdp.cli.fill import fill
from gdp.cli.hydra_config import composed, resolved
from gdp.cli.pretraining_tasks import pretraining_source
from gdp.cli.train_config import TrainConfig
from gdp.learn.sources import FAMILIES
from gdp.workloads.catalog import CATALOG


def test_the_papers_suite_is_all_of_its_pairs_once(tmp_path: Path) -> None:
    settings = fill(TrainConfig, resolved(composed("train", ["experiment=gdp_batch", f"run_dir={tmp_path}"])), where="")
    source = pretraining_source(settings, None)
    small = {"vgg-16-training", "resnet-50-training", "rnnlm-2-training"}
    names = settings.workload.workloads
    pairs = Counter(
        (task.graph.source, task.cluster.name)
        for number in range(settings.workload.num_tasks)
        if names[number % len(names)] in small and (task := source.task(number)) is not None
    )
    assert len(pairs) == 9 and set(pairs.values()) == {1}
    assert settings.workload.num_tasks == len(names) * len(settings.workload.presets)


def test_random_graphs_are_of_families_that_neither_validation_nor_hold_out_has() -> None:
    split = {entry.family: entry.split for entry in CATALOG}
    of_the_catalog = {"layered", "cells", "unrolled-rnn"}
    assert {split[family] for family in of_the_catalog} == {"pretraining"}
    assert {family.__name__.replace("_", "-") for family in FAMILIES} - of_the_catalog == {"blocked"}, (
        "no family of the catalog; of the kind of its sharded ones"
    )


def test_no_family_is_in_two_splits() -> None:
    assert len({(entry.family, entry.split) for entry in CATALOG}) == len({entry.family for entry in CATALOG})
