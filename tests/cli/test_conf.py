"""Every file under conf/ composes and fills its dataclass; every mistake is told in a sentence."""

import dataclasses
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from gdp.bundled import bundled
from gdp.cli.fill import fill
from gdp.cli.finetune_config import FinetuneSettings, MeasuredConfig, NamedWorkload, SimulatorConfig
from gdp.cli.hydra_config import check_overrides, composed, options, resolved, translate
from gdp.cli.launch import launch
from gdp.cli.train_config import TrainConfig
from gdp.errors import InputError
from gdp.learn.config import RewardConfig

ROOT = Path(__file__).resolve().parent.parent.parent
TRAIN_GROUPS = ("cluster", "features", "policy", "reward", "tracker")


def _train(*overrides: str) -> TrainConfig:
    return fill(TrainConfig, resolved(composed("train", ["run_dir=r", *overrides])), where="")


def _finetune(*overrides: str) -> FinetuneSettings:
    return fill(FinetuneSettings, resolved(composed("finetune", ["run_dir=r", "workload.name=x", *overrides])), where="")


@pytest.mark.parametrize(("group", "name"), [(group, name) for group in TRAIN_GROUPS for name in options(group)])
def test_every_option_fills_its_dataclass(group: str, name: str) -> None:
    _train(f"{group}={name}")
    _finetune(f"{group}={name}")


@pytest.mark.parametrize("name", sorted(set(options("workload")) - {"named"}))
def test_every_pretraining_workload(name: str) -> None:
    _train(f"workload={name}")


@pytest.mark.parametrize("name", options("learner"))
def test_every_learner(name: str) -> None:
    _train(f"learner={name}")


def test_every_runtime() -> None:
    assert options("runtime") == ["pytorch", "simulator", "tensorflow"]
    for name in ("pytorch", "tensorflow"):
        assert fill(MeasuredConfig, _finetune(f"runtime={name}").runtime, where="runtime").kind == name
    fill(SimulatorConfig, _finetune("runtime=simulator").runtime, where="runtime")


@pytest.mark.parametrize("name", options("experiment"))
def test_every_experiment_composes_and_differs_from_the_default(name: str) -> None:
    if "finetune:" in (bundled("conf") / "experiment" / f"{name}.yaml").read_text():
        assert _finetune(f"experiment={name}") != _finetune()
    else:
        assert _train(f"experiment={name}") != _train()


@pytest.mark.parametrize("path", sorted(bundled("conf").glob("reward/*.yaml")), ids=lambda path: path.stem)
def test_a_leaf_lists_exactly_the_fields(path: Path) -> None:
    import yaml

    assert set(yaml.safe_load(path.read_text())) == {field.name for field in dataclasses.fields(RewardConfig)}


@pytest.mark.parametrize(
    ("override", "hint"),
    [
        ("polcy.hidden=3", "did you mean 'policy.hidden'"),
        ("learner.udpates=3", "did you mean 'learner.updates'"),
        ("policy=tny", "did you mean 'tiny'"),
        ("experiment=smok", "did you mean 'smoke'"),
        ("cluster=p100x5", "did you mean 'p100x"),
        ("zzz=1", "known are"),
        ("seed", "key=value"),
        ("cluster=nope", "`local` or a YAML file"),
        ("cluster=null", "names nothing"),
        ("cluster=", "names nothing"),
        ("workload=nosuch", "known are .*pretraining"),
        ("seed=[", "cannot be read"),
        ("seed=1,2", "several values.*add -m"),
    ],
)
def test_a_misspelt_key_or_option_gets_the_nearest(override: str, hint: str) -> None:
    with pytest.raises(InputError, match=hint):
        check_overrides("train", [override])


@pytest.mark.parametrize(
    ("override", "hint"),
    [
        ("learner.updates=many", "learner.updates is 'many'; it must be a whole number"),
        ("learner.clip=2", "between 0 and 1"),
        ("resume=maybe", "known are auto, never"),
        ("policy.decoding=sequentail", "did you mean 'sequential'"),
        ("reward.invalid=3", "negative"),
        ("+policy.color=red", "policy has no key 'color'"),
        ("~seed", "lacks seed"),
        (f"seed={2**70}", "seed is .* between 0 and"),
        ("run_dir=null", "run_dir is None; it must be the path of a folder"),
        ("run_dir=", "the path of a folder"),
        ("learner.learning_rate=inf", "above 0 and at most 1"),
        ("learner.learning_rate=1e300", "above 0 and at most 1"),
        ("learner.final_learning_rate=1e300", "between 0 and 1"),
        ("learner.temperature=inf", "between 0.001 and 1000"),
        ("learner.temperature=1e-300", "between 0.001 and 1000"),
        ("learner.elite_weight=1e300", "between 0 and 1000"),
        ("num_threads=100000", "between 1 and 1024"),
        ("workload.random_cluster.max_latency_s=1e300", "lie between 1e-12 and 10"),
        ("workload.random_cluster.min_bandwidth_bytes_per_s=1e-300", "lie between 1 and 1e.15"),
        ("learner.samples_per_update=1000000000", "at most 65536"),
        ("learner.updates=1000000000", "at most 10000000"),
        ("imitation.learning_rate=inf", "imitation.learning_rate is inf; it must be above 0 and at most 1"),
        ("imitation.final_learning_rate=nan", "above 0 and at most 1"),
        ("imitation.steps=1000000000", "at most 10000000"),
        ("imitation.placements_per_step=1000000000", "at most 65536"),
        ("imitation.region_share=1.5", "between 0 and 1"),
        ("judging.learning_rate=inf", "judging.learning_rate is inf; it must be above 0 and at most 1"),
        ("judging.batch_size=1000000000", "at most 65536"),
        ("judging.max_ops=1000000000", "at most 10000000"),
        ("validation.num_samples=1000000000", "at most 65535"),
        ("validation.synthetic=1000000000", "at most 65536"),
        ("workload.num_tasks=1000000000", "at most 10000000"),
        ("workload.max_ops=1000000000", "at most 10000000"),
        ("name=my/policy", "the checkpoint name 'my/policy' is none"),
    ],
)
def test_a_value_of_the_wrong_kind_is_refused(override: str, hint: str) -> None:
    with pytest.raises(InputError, match=hint):
        _train(override)


def test_free_names_of_workload_and_cluster() -> None:
    assert translate("finetune", ["workload=resnet50", "cluster=local"]) == [
        "workload=named",
        "workload.name=resnet50",
        "cluster_source=local",
    ]
    assert translate("train", ["workload=synthetic", "cluster=p100x4", "seed=1"]) == ["workload=synthetic", "cluster=p100x4", "seed=1"]
    filled = fill(
        FinetuneSettings,
        resolved(composed("finetune", translate("finetune", ["workload=a b/m.py:build", "cluster=my c.yaml", "run_dir=r"]))),
        where="",
    )
    assert filled.workload == NamedWorkload(name="a b/m.py:build") and filled.cluster_source == "my c.yaml"


@pytest.mark.parametrize("name", ["it's.py:f", "it\\'s.py:f", "a,b c.py:f", "back\\", "[x].parquet"])
def test_a_name_with_special_characters_arrives_as_it_was_typed(name: str) -> None:
    overrides = translate("finetune", [f"workload={name}", "run_dir=r"])
    check_overrides("finetune", overrides)
    assert resolved(composed("finetune", overrides))["workload"] == {"name": name}


def test_training_without_a_thread_for_the_simulator_is_refused() -> None:
    with pytest.raises(InputError, match="num_threads is 0; it must be between 1 and 1024"):
        _train("num_threads=0")


def test_an_absurd_number_of_samples_is_refused() -> None:
    for name in ("zero_shot_samples", "evaluations", "search_evaluations"):
        with pytest.raises(InputError, match=rf"finetune.{name} is 1000000000; it must be at most"):
            _finetune(f"finetune.{name}=1000000000")


def test_an_empty_policy_or_workload_is_refused() -> None:
    with pytest.raises(InputError, match="init is empty"):
        _finetune("init=")
    with pytest.raises(InputError, match="workload=NAME"):
        translate("finetune", ["workload="])


def test_debug_raises_the_mistake(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HYDRA_FULL_ERROR", "0")
    with pytest.raises(InputError, match="did you mean 'policy.hidden'"):
        launch("train", lambda config, typed: 0, ["--debug", "polcy.hidden=3"])


def test_a_run_gets_its_configuration_and_the_command_as_typed() -> None:
    seen = []
    assert (
        launch("train", lambda config, typed: seen.append((config["cluster_source"], typed[-2:])) or 7, ["cluster=local", "run_dir=r"]) == 7
    )
    assert seen == [("local", ["cluster=local", "run_dir=r"])]


def test_a_missing_workload_is_told() -> None:
    with pytest.raises(InputError, match="workload=NAME"):
        resolved(composed("finetune", ["run_dir=r"]))


@pytest.mark.parametrize("script", ["train.py", "finetune.py"])
def test_a_mistake_is_one_sentence_and_exit_code_2(script: str, tmp_path: Path) -> None:
    done = subprocess.run([sys.executable, str(ROOT / script), "polcy.hidden=3"], capture_output=True, text=True, cwd=tmp_path, check=False)
    assert done.returncode == 2
    assert done.stdout == "" and len(done.stderr.splitlines()) == 1 and "did you mean 'policy.hidden'" in done.stderr
    assert list(tmp_path.iterdir()) == []


def test_left_out_families_are_not_learned_on() -> None:
    """GDP's protocol of generalisation: everything but one family."""
    from gdp.cli.pretraining_tasks import pretraining_source
    from gdp.workloads.catalog import workload

    small = ["workload=papers", "workload.workloads=[rnnlm-2-training,vgg-16-training]", "workload.num_tasks=6"]
    source = pretraining_source(_train(*small, "workload.leave_out=[rnnlm]"), None)
    vgg = workload("vgg-16-training").build()
    learned = [task for task in map(source.task, range(6)) if task is not None]
    assert learned and {task.graph.sha256 for task in learned} == {vgg.sha256}
    with pytest.raises(InputError, match=r"leave_out names 'rnnml'.*did you mean 'rnnlm'"):
        pretraining_source(_train(*small, "workload.leave_out=[rnnml]"), None)
    with pytest.raises(InputError, match="leaves none"):
        pretraining_source(_train(*small, "workload.leave_out=[rnnlm,vgg]"), None)


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_a_gpu_that_is_not_there_is_missed_before_anything_is_touched(tmp_path: Path) -> None:
    from gdp.cli.pretraining import pretrain

    config = resolved(composed("train", ["experiment=large", "tracker=jsonl", f"run_dir={tmp_path / 'run'}"]))
    with pytest.raises(InputError, match="PyTorch sees no GPU"):
        pretrain(fill(TrainConfig, config, where=""), config, ())
    assert not (tmp_path / "run").exists()


def test_the_first_samples_leave_something_of_the_evaluations() -> None:
    with pytest.raises(InputError, match="zero_shot_samples is 16 of finetune.evaluations 16; leave some for the search"):
        _finetune("finetune.evaluations=16")
    assert _finetune("finetune.evaluations=17").finetune.evaluations == 17
    assert _finetune("finetune.evaluations=1", "finetune.zero_shot_samples=1").finetune.evaluations == 1
