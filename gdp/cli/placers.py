"""The placers that `gdp compare` puts side by side, by the names that are typed."""

import dataclasses
from collections.abc import Callable

from gdp.errors import InputError, nearest_name_hint
from gdp.measurement import Objective, Runtime
from gdp.placement import Placer
from gdp.runtime.verdict import Dispatch


@dataclasses.dataclass(frozen=True, kw_only=True)
class Setting:
    """What a placer is built for."""

    runtime: Runtime
    dispatch: Dispatch
    """how the runtime's devices choose what to run, which the policy sees."""
    budget: int
    """evaluations of every anytime placer."""
    seed: int
    objective: Objective
    policy: str
    samples: int
    """evaluations of the policy."""
    family: str | None
    """of the workload, which the human expert needs; `None` for a model of the user's."""


def chosen(text: str) -> list[str]:
    """The names in a comma-separated list; `all` stands for all of them. Raises `InputError` with the nearest name for one that is none."""
    names = list(dict.fromkeys(PLACERS if text == "all" else text.split(",")))
    for name in names:
        if name not in PLACERS:
            hint = nearest_name_hint(name, PLACERS)
            raise InputError(f"there is no placer {name!r}; {hint}known are {', '.join(PLACERS)}, and all")
    return names


def placer(name: str, setting: Setting) -> Placer | None:
    """The placer of this name; `None` where it has nothing to say, as an expert of a workload that no family is known of."""
    return PLACERS[name](setting)


def _single_device(setting: Setting) -> Placer:
    from gdp.baselines.single_device import SingleDevice

    return SingleDevice(runtime=setting.runtime, objective=setting.objective)


def _expert(setting: Setting) -> Placer | None:
    from gdp.baselines.expert import Expert, expert_families, expert_rules

    return Expert(rules=expert_rules(setting.family)) if setting.family in expert_families() else None


def _random(setting: Setting) -> Placer:
    from gdp.baselines.random_placement import RandomPlacement

    return RandomPlacement(seed=setting.seed)


def _round_robin(setting: Setting) -> Placer:
    from gdp.baselines.round_robin import RoundRobin

    return RoundRobin(runtime=setting.runtime, objective=setting.objective)


def _contiguous(setting: Setting) -> Placer:
    from gdp.baselines.contiguous import Contiguous

    return Contiguous(runtime=setting.runtime, objective=setting.objective)


def _contiguous_by_memory(setting: Setting) -> Placer:
    from gdp.baselines.contiguous import Contiguous

    return Contiguous(runtime=setting.runtime, objective=setting.objective, balance="memory")


def _device_map(setting: Setting) -> Placer:
    from gdp.baselines.automatic_device_map import AutomaticDeviceMap

    return AutomaticDeviceMap(runtime=setting.runtime, objective=setting.objective)


def _metis(setting: Setting) -> Placer:
    from gdp.baselines.metis import Metis

    return Metis(seed=setting.seed)


def _metis_by_bytes(setting: Setting) -> Placer:
    from gdp.baselines.metis import Metis

    return Metis(seed=setting.seed, weight="bytes")


def _heft(setting: Setting) -> Placer:
    from gdp.baselines.heft import Heft

    return Heft(runtime=setting.runtime, objective=setting.objective)


def _cpop(setting: Setting) -> Placer:
    from gdp.baselines.cpop import Cpop

    return Cpop(runtime=setting.runtime, objective=setting.objective)


def _list_scheduling(setting: Setting) -> Placer:
    from gdp.baselines.list_scheduling import ListScheduling

    return ListScheduling(runtime=setting.runtime, objective=setting.objective)


def _m_topo(setting: Setting) -> Placer:
    from gdp.baselines.m_topo import MTopo

    return MTopo(runtime=setting.runtime, objective=setting.objective)


def _m_etf(setting: Setting) -> Placer:
    from gdp.baselines.m_etf import MEtf

    return MEtf(runtime=setting.runtime, objective=setting.objective)


def _m_sct(setting: Setting) -> Placer:
    from gdp.baselines.m_sct import MSct

    return MSct(runtime=setting.runtime, objective=setting.objective)


def _metis_many_times(setting: Setting) -> Placer:
    from gdp.baselines.metis import MetisManyTimes

    return MetisManyTimes(runtime=setting.runtime, evaluations=setting.budget, seed=setting.seed, objective=setting.objective)


def _local_search(setting: Setting) -> Placer:
    from gdp.baselines.local_search import LocalSearch

    return LocalSearch(runtime=setting.runtime, evaluations=setting.budget, seed=setting.seed, objective=setting.objective)


def _critical_path_search(setting: Setting) -> Placer | None:
    from gdp.baselines.local_search import LocalSearch
    from gdp.runtime.simulator import Simulator

    if setting.objective != "step_time":
        return None
    predictor = Simulator(dispatch=setting.dispatch)
    return LocalSearch(runtime=setting.runtime, evaluations=setting.budget, seed=setting.seed, predictor=predictor)


def _simulated_annealing(setting: Setting) -> Placer:
    from gdp.baselines.simulated_annealing import SimulatedAnnealing

    return SimulatedAnnealing(runtime=setting.runtime, evaluations=setting.budget, seed=setting.seed, objective=setting.objective)


def _cross_entropy(setting: Setting) -> Placer:
    from gdp.baselines.cross_entropy import CrossEntropy

    return CrossEntropy(runtime=setting.runtime, evaluations=setting.budget, seed=setting.seed, objective=setting.objective)


def _zero_shot(setting: Setting) -> Placer:
    from gdp.cli.policy_placers import NamedPolicy

    return NamedPolicy.open(setting.policy).zero_shot(
        runtime=setting.runtime,
        dispatch=setting.dispatch,
        num_samples=setting.samples,
        seed=setting.seed,
        objective=setting.objective,
    )


def _policy_search(setting: Setting) -> Placer | None:
    from gdp.cli.policy_placers import NamedPolicy

    if setting.objective != "step_time":
        return None
    return NamedPolicy.open(setting.policy).search(
        runtime=setting.runtime, dispatch=setting.dispatch, evaluations=setting.budget, seed=setting.seed
    )


def _fine_tuned(setting: Setting) -> Placer | None:
    from gdp.cli.policy_placers import NamedPolicy

    if setting.objective != "step_time":
        return None
    return NamedPolicy.open(setting.policy).fine_tuning(
        runtime=setting.runtime, dispatch=setting.dispatch, evaluations=setting.budget, seed=setting.seed
    )


def _gdp_one(setting: Setting) -> Placer:
    import torch

    from gdp.cli.fill import fill
    from gdp.cli.finetune_config import FinetuneSettings
    from gdp.cli.hydra_config import composed, resolved
    from gdp.learn.sampling_search import SamplingSearch
    from gdp.policy.policy import Policy

    config = fill(FinetuneSettings, resolved(composed("finetune", ["experiment=gdp_one", "workload.name=any"])), where="")
    return SamplingSearch(
        Policy(config.policy, config.features, generator=torch.Generator().manual_seed(setting.seed)),
        runtime=setting.runtime,
        dispatch=setting.dispatch,
        evaluations=setting.budget,
        seed=setting.seed,
        config=config.learner,
        reward=dataclasses.replace(config.reward, objective=setting.objective),
        max_groups=config.finetune.max_groups,
    )


PLACERS: dict[str, Callable[[Setting], Placer | None]] = {
    "single-device": _single_device,
    "expert": _expert,
    "random": _random,
    "round-robin": _round_robin,
    "contiguous": _contiguous,
    "contiguous-by-memory": _contiguous_by_memory,
    "device-map": _device_map,
    "metis": _metis,
    "metis-by-bytes": _metis_by_bytes,
    "heft": _heft,
    "cpop": _cpop,
    "list-scheduling": _list_scheduling,
    "m-topo": _m_topo,
    "m-etf": _m_etf,
    "m-sct": _m_sct,
    "metis-many-times": _metis_many_times,
    "local-search": _local_search,
    "critical-path-search": _critical_path_search,
    "simulated-annealing": _simulated_annealing,
    "cross-entropy": _cross_entropy,
    "zero-shot": _zero_shot,
    "policy-search": _policy_search,
    "fine-tuned": _fine_tuned,
    "gdp-one": _gdp_one,
}
"""By what is typed after `--placers`."""

SEARCHES = (
    "metis-many-times",
    "local-search",
    "critical-path-search",
    "simulated-annealing",
    "cross-entropy",
    "zero-shot",
    "policy-search",
    "fine-tuned",
    "gdp-one",
)
"""Those that spend the budget of evaluations."""

POLICY = ("zero-shot", "policy-search", "fine-tuned")
"""Those that `--policy` names."""

SEEDED = ("random", "metis", "metis-by-bytes", *SEARCHES)
"""Those that draw: asked once per seed."""
