"""What learning is worth in search, at equal evaluations: a pretrained policy, the same without each of its parts, one from scratch, and no policy at all.

    python benchmarks/policy.py [--policy gdp-tiny] [--variants NAMES] [--other LABEL=FOLDER ...] [--cells NAMES] [--seeds 3] [--evaluations 1000] [--workers 1] [--out FILE]

All begin at the same simple placements, spend the same evaluations, and are the same search but for what is left out: *no policy* is critical-path search,
*without regions* is without the policy's samples, too. *PPO alone* is the way of GDP (arXiv 1910.01578), with `finetune.py`'s learner: all of a policy learns from whole placements
that it samples, and nothing else is tried, neither simple placements nor moves; `--variants` must name it. `--other` names further checkpoints, such as policies trained without
attention, whose search stands beside. A row that is in the file already is kept, so what was killed goes on. The table has the geometric mean over cells and seeds of
the best step time so far over that of no policy; *evaluations for the end of* counts how many a variant needs until it is as good as the other at the end, over what
the other spent. Whole tables of placers are `gdp compare`'s (docs/results.md).
"""

import argparse
import copy
import dataclasses
import json
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from pathlib import Path
from typing import Any

import numpy as np
import torch
from rich.console import Console
from rich.table import Table

from gdp.atomic_file import write_text
from gdp.baselines.local_search import LocalSearch
from gdp.baselines.search_result import SearchResult
from gdp.cli.fill import fill
from gdp.cli.finetune_config import FinetuneSettings
from gdp.cli.hydra_config import composed, resolved
from gdp.cli.policy_placers import NamedPolicy
from gdp.cli.report_data import environment
from gdp.cli.run_folder import source_commit
from gdp.cluster import Cluster, preset
from gdp.compare.recorded import Recorded
from gdp.graph import Graph
from gdp.hub import load
from gdp.hub.checkpoint import read_config
from gdp.hub.load import resolve
from gdp.learn.adapting_search import AdaptingSearch
from gdp.learn.sampling_search import SamplingSearch
from gdp.policy.judge import judge_maker
from gdp.policy.policy import Policy
from gdp.policy.search import PolicySearch
from gdp.runtime.simulator import Simulator
from gdp.workloads.catalog import workload

NO_POLICY = "no policy"
SCRATCH = "fine-tuned, from scratch"
ALONE_FROM_SCRATCH = "PPO alone, from scratch"
WITHOUT_WEIGHTS = (NO_POLICY, SCRATCH, ALONE_FROM_SCRATCH)
BUDGETS = (10, 30, 100, 300, 1000)
CELLS = (
    "inception-v3-training@p100x4",
    "transformer-xl-4-training@p100x4",
    "gnmt-2-training@p100x4",
    "nasnet-a-mobile-training@p100x4",
    "whisper-small-training@p100x4",
    "amoebanet-d-training@p100x2",
    "wavenet-18-training@p100x8",
    "inception-v3-training@unequal",
    "gnmt-2-training@two-machines",
)
"""Of hold-out and validation: what the policy was not trained on."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Setting:
    """What a variant is built for."""

    policy: Policy
    runtime: Simulator
    evaluations: int
    seed: int

    @property
    def named(self) -> NamedPolicy:
        return NamedPolicy(self.policy, "policy", None)


def _no_policy(setting: Setting) -> LocalSearch:
    return LocalSearch(runtime=setting.runtime, evaluations=setting.evaluations, seed=setting.seed, predictor=setting.runtime)


def _policy_search(setting: Setting) -> PolicySearch | None:
    runtime = setting.runtime
    return setting.named.search(runtime=runtime, dispatch=runtime.dispatch, evaluations=setting.evaluations, seed=setting.seed)


def _without_judge(setting: Setting) -> PolicySearch | None:
    policy = copy.deepcopy(setting.policy)
    policy.judge = None
    return _policy_search(dataclasses.replace(setting, policy=policy))


def _without_regions(setting: Setting) -> LocalSearch:
    return dataclasses.replace(_no_policy(setting), judge=judge_maker(setting.policy.judge))


def _fine_tuned(setting: Setting) -> AdaptingSearch | None:
    runtime = setting.runtime
    return setting.named.fine_tuning(runtime=runtime, dispatch=runtime.dispatch, evaluations=setting.evaluations, seed=setting.seed)


def _from_scratch(setting: Setting) -> AdaptingSearch | None:
    return _fine_tuned(dataclasses.replace(setting, policy=_new_policy(setting)))


def _new_policy(setting: Setting) -> Policy:
    sizes = dataclasses.replace(setting.policy.config, judge_width=0)  # an untrained judge would only mislead
    return Policy(sizes, setting.policy.features, generator=torch.Generator().manual_seed(setting.seed))


@dataclasses.dataclass(frozen=True, kw_only=True)
class PPOAlone:
    """`gdp.learn.sampling_search.SamplingSearch` as `finetune.py` learns, with its curve."""

    policy: Policy
    runtime: Simulator
    evaluations: int
    seed: int
    max_groups: int
    """decisions; of a larger graph, groups are merged."""

    def search(self, graph: Graph, cluster: Cluster) -> SearchResult:
        """The best placement, and the best time after each evaluation."""
        config = fill(FinetuneSettings, resolved(composed("finetune", ["workload.name=any"])), where="")
        recorded = Recorded(self.runtime, objective="step_time")
        placement = SamplingSearch(
            self.policy,
            runtime=recorded,
            dispatch=self.runtime.dispatch,
            evaluations=self.evaluations,
            seed=self.seed,
            config=dataclasses.replace(config.learner, patience_updates=0),
            reward=config.reward,
            max_groups=self.max_groups,
        )(graph, cluster)
        best_so_far_s = np.full(recorded.evaluations, np.inf)
        for at, best_s in zip(recorded.improved_at, recorded.best_s, strict=True):
            best_so_far_s[at - 1 :] = best_s
        return SearchResult(placement=placement, best_so_far_s=best_so_far_s)


_PRETRAINED_GROUPS, _NEW_GROUPS = 4096, 256
"""As many as the published ones were taught with; `finetune.py`'s own number, with which a new policy gets further."""


def _alone(setting: Setting, max_groups: int = _PRETRAINED_GROUPS) -> PPOAlone:
    return PPOAlone(
        policy=setting.policy, runtime=setting.runtime, evaluations=setting.evaluations, seed=setting.seed, max_groups=max_groups
    )


def _alone_from_scratch(setting: Setting) -> PPOAlone:
    return _alone(dataclasses.replace(setting, policy=_new_policy(setting)), _NEW_GROUPS)


Search = LocalSearch | PolicySearch | AdaptingSearch | PPOAlone | None

VARIANTS: dict[str, Callable[[Setting], Search]] = {
    NO_POLICY: _no_policy,
    "policy search": _policy_search,
    "without judge": _without_judge,
    "without regions": _without_regions,
    "fine-tuned": _fine_tuned,
    SCRATCH: _from_scratch,
    "PPO alone": _alone,
    ALONE_FROM_SCRATCH: _alone_from_scratch,
}
SEARCHES = tuple(VARIANTS)[:6]
"""Those that are compared unless others are asked for."""


def answer(question: tuple[str, str, str, int, int]) -> dict[str, Any]:
    """One row: variant, the policy to load, cell, seed, evaluations."""
    variant, policy, cell, seed, evaluations = question
    torch.set_num_threads(1)
    name, _, cluster = cell.partition("@")
    entry = workload(name)
    graph = entry.build()
    setting = Setting(policy=load(policy), runtime=Simulator(dispatch=entry.dispatch, num_threads=1), evaluations=evaluations, seed=seed)
    search = VARIANTS.get(variant, _policy_search)(setting)
    if search is None:
        raise SystemExit(f"the policy {policy} cannot hold groups; name one that can")
    began = time.perf_counter()
    found: SearchResult = search.search(graph, preset(cluster))
    wall_s = time.perf_counter() - began
    improved = np.flatnonzero(np.diff(found.best_so_far_s, prepend=np.inf) < 0)
    return {
        "variant": variant,
        "cell": cell,
        "seed": seed,
        "asked_evaluations": evaluations,
        "evaluations": len(found.best_so_far_s),
        "weights_sha256": weights(variant, policy),
        "commit": source_commit(),
        "improved_at": (improved + 1).tolist(),
        "best_s": found.best_so_far_s[improved].tolist(),
        "wall_s": wall_s,
    }


def weights(variant: str, policy: str) -> str | None:
    """Of the policy that a row is of; `None` where there is none, or a new one."""
    return None if variant in WITHOUT_WEIGHTS else read_config(resolve(policy).folder).facts.weights_sha256


def best_at(row: dict[str, Any], evaluations: int) -> float:
    """The best step time after so many evaluations; infinite where nothing has run by then."""
    at = np.searchsorted(row["improved_at"], evaluations, side="right")
    return float(row["best_s"][at - 1]) if at else float("inf")


def needed(row: dict[str, Any], goal_s: float) -> float:
    """The evaluations until a row is at least as good; infinite where it never is."""
    there = [at for at, best_s in zip(row["improved_at"], row["best_s"], strict=True) if best_s <= goal_s]
    return there[0] if there else float("inf")


def geometric_mean(values: Sequence[float]) -> float:
    return float(np.exp(np.mean(np.log(values))))


def tables(rows: Sequence[dict[str, Any]], *, evaluations: int) -> list[Table]:
    """Quality at every budget, each variant over its own cells; then each cell at the end."""
    found = {(row["variant"], row["cell"], row["seed"]): row for row in rows}
    variants, cells = (list(dict.fromkeys(row[what] for row in rows)) for what in ("variant", "cell"))
    seeds = sorted({row["seed"] for row in rows})
    budgets = [budget for budget in BUDGETS if budget <= evaluations]
    ends = [other for other in (NO_POLICY, SCRATCH, ALONE_FROM_SCRATCH) if other in variants]
    quality = Table(
        "variant", *map(str, budgets), "seeds at the end", *(f"evaluations for the end of {other}" for other in ends), "wall time",
        title="best so far over that of no policy", title_justify="left",
    )  # fmt: skip
    per_cell = Table("cell", *(variant for variant in variants if variant != NO_POLICY), title=f"after {evaluations}", title_justify="left")

    def pairs(variant: str, other: str, *, seed: int | None = None) -> list[tuple[dict[str, Any], dict[str, Any]]]:
        both = [(found.get((variant, cell, one)), found.get((other, cell, one))) for cell in cells for one in seeds if seed in (None, one)]
        return [(row, beside) for row, beside in both if row is not None and beside is not None]

    for variant in variants:
        compared = pairs(variant, NO_POLICY)
        if not compared:
            continue
        ratios = [geometric_mean([best_at(row, budget) / best_at(beside, budget) for row, beside in compared]) for budget in budgets]
        by_seed = [
            geometric_mean([row["best_s"][-1] / beside["best_s"][-1] for row, beside in pairs(variant, NO_POLICY, seed=seed)])
            for seed in seeds
        ]
        shares = []
        for other in ends:
            share = [needed(row, beside["best_s"][-1]) / beside["evaluations"] for row, beside in pairs(variant, other)]
            never = sum(np.isinf(share))
            shares.append(f"{float(np.median(share)):.2f}" + (f" (never in {never} of {len(share)})" if never else ""))
        wall = geometric_mean([row["wall_s"] / beside["wall_s"] for row, beside in compared])
        quality.add_row(
            variant, *(f"{ratio:.3f}" for ratio in ratios), " ".join(f"{ratio:.3f}" for ratio in by_seed), *shares, f"{wall:.1f}"
        )
    for cell in cells:
        ratios = {
            variant: [
                found[variant, cell, seed]["best_s"][-1] / found[NO_POLICY, cell, seed]["best_s"][-1]
                for seed in seeds
                if (variant, cell, seed) in found and (NO_POLICY, cell, seed) in found
            ]
            for variant in variants
            if variant != NO_POLICY
        }
        per_cell.add_row(cell, *(f"{geometric_mean(ratio):.3f}" if ratio else "" for ratio in ratios.values()))
    return [quality, per_cell]


def main() -> None:
    """Runs what is missing, writes the file row by row, prints the tables."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--policy", default="gdp-tiny")
    parser.add_argument(
        "--other", action="append", default=[], metavar="LABEL=POLICY", help="a further checkpoint, whose search stands beside"
    )
    parser.add_argument("--variants", nargs="+", choices=list(VARIANTS), default=list(SEARCHES), metavar="NAME", help="; ".join(VARIANTS))
    parser.add_argument("--cells", default=",".join(CELLS), help="WORKLOAD@PRESET, comma-separated")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--evaluations", type=int, default=1000)
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results" / "policy.json")
    options = parser.parse_args()
    policies = {variant: options.policy for variant in options.variants} | dict(each.split("=", 1) for each in options.other)
    earlier = json.loads(options.out.read_text()) if options.out.exists() else {"policy": options.policy, "rows": []}
    known: list[dict[str, Any]] = earlier["rows"]
    if earlier["policy"] != options.policy:
        parser.error(f"{options.out} is of {earlier['policy']}, whose sizes its policies from scratch have, too; write into another file")
    for row in known:
        variant = row["variant"]
        if variant in policies and (row.get("weights_sha256"), row.get("asked_evaluations")) != (
            weights(variant, policies[variant]),
            options.evaluations,
        ):
            parser.error(
                f"{options.out} has rows of {variant!r} with other weights or evaluations; write into another file, or take them out"
            )
    done = {(row["variant"], row["cell"], row["seed"]) for row in known}
    questions = [
        (variant, policy, cell, seed, options.evaluations)
        for seed in range(options.seeds)
        for cell in options.cells.split(",")
        for variant, policy in policies.items()
        if (variant, cell, seed) not in done
    ]
    console = Console(width=200)
    with ProcessPoolExecutor(max_workers=options.workers) as pool:
        for done_one in as_completed([pool.submit(answer, question) for question in questions]):
            row = done_one.result()
            known.append(row)
            console.print(f"{row['variant']}, {row['cell']}, seed {row['seed']}: {row['wall_s']:.0f} s", highlight=False)
            document = {"policy": options.policy, "others": dict(each.split("=", 1) for each in options.other)}
            document |= {"evaluations": options.evaluations, "environment": environment(), "rows": known}
            write_text(options.out, json.dumps(document) + "\n")
    for table in tables(known, evaluations=options.evaluations):
        console.print(table)


if __name__ == "__main__":
    main()
