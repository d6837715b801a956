"""Imitation of the best placement known for a task, found by search or by the policy itself: cross-entropy on every decision of every pass.

As a warm-up before PPO it starts a policy from searched placements (`imitate`); as a term of the PPO loss (`LearnConfig.elite_weight`) it is self-imitation
(Oh et al., arXiv 1806.05635, without their value gate). A decoding pass sees the pass before it; shown the target there, it would learn to copy. So each pass is
taught to reach the target from what the policy itself decided in the pass before. A policy of one sequential pass is taught regions, too: some groups are free, the others
held where the target has them.
"""

import dataclasses
from collections.abc import Callable, Iterator, Sequence

import numpy as np
import torch
from jaxtyping import Bool, Float32, Int32, Int64

from gdp.baselines.local_search import LocalSearch
from gdp.cluster import Cluster
from gdp.errors import InputError
from gdp.learn.learner import Incumbent, Learner
from gdp.learn.limits import MAX_EVALUATIONS, MAX_SAMPLES, MAX_STEPS, check_counts, check_learning_rate
from gdp.learn.regions import random_regions
from gdp.learn.task import Task
from gdp.measurement import Objective
from gdp.placement import Origin, Placement
from gdp.policy.judge import JudgeNetwork, judge_maker
from gdp.policy.policy import Policy
from gdp.policy.search import PolicySearch
from gdp.runtime.roofline import op_time_s
from gdp.runtime.simulator import Simulator


@dataclasses.dataclass(frozen=True, kw_only=True)
class ImitationConfig:
    """The warm-up before PPO."""

    steps: int
    """one task each, and one step of the optimiser; 0 leaves the warm-up out."""
    search_evaluations: int
    """budget of the search that finds a task's placement."""
    placements_per_step: int
    """how many times the placement is decided in a step, each with groups of its own held."""
    region_share: float
    """of those, the share in which all but a region is held; 0 for a policy that cannot hold groups."""
    learning_rate: float
    final_learning_rate: float
    """reached in the last step, linearly; equal to `learning_rate` for a constant one."""

    def __post_init__(self) -> None:
        check_counts(
            "imitation",
            (
                ("steps", self.steps, 0, MAX_STEPS),
                ("search_evaluations", self.search_evaluations, 1, MAX_EVALUATIONS),
                ("placements_per_step", self.placements_per_step, 1, MAX_SAMPLES),
            ),
        )
        check_learning_rate("imitation.learning_rate", self.learning_rate)
        check_learning_rate("imitation.final_learning_rate", self.final_learning_rate)
        if not 0 <= self.region_share <= 1:
            raise InputError(f"imitation.region_share is {self.region_share}; it must lie between 0 and 1")


def imitate(
    learner: Learner,
    numbers: Sequence[int],
    target_of: Callable[[int], tuple[Task, Incumbent] | None],
    *,
    config: ImitationConfig,
    gradient_norm: float,
    objective: Objective,
) -> Iterator[dict[str, float]]:
    """Moves the learner towards searched placements, from the step where it stands to the last; yields the metrics of each step.

    Step `i` is taught by task `numbers[i]`; `target_of` gives it with its placement, `None` when nothing that runs is known: then the step has no metrics, and teaches nothing.
    """
    if len(numbers) and config.region_share and not learner.policy.can_hold:
        raise InputError(
            f"imitation.region_share is {config.region_share}, but only a policy of one sequential pass can hold groups; set it to 0, or policy.passes=1 policy.decoding=sequential"
        )
    while learner.imitation_step < len(numbers):
        number = numbers[learner.imitation_step]
        learner.imitation_step += 1
        for group in learner.optimizer.param_groups:
            done = (learner.imitation_step - 1) / max(len(numbers) - 1, 1)
            group["lr"] = config.learning_rate + (config.final_learning_rate - config.learning_rate) * done
        known = target_of(number)
        if known is None:
            yield {}
            continue
        task, best = known
        if task.name not in learner.incumbent:
            learner.evaluations += config.search_evaluations
        learner.offer(task, best, objective=objective)
        learner.optimizer.zero_grad()
        if config.region_share:
            free = random_regions(
                task.tensors.num_groups, count=config.placements_per_step, share=config.region_share, generator=learner.numpy_generator
            )
            loss = region_loss(learner.policy, task, best.group_device, torch.from_numpy(free))
        else:
            loss = imitation_loss(learner.policy, task, best.group_device, generator=learner.torch_generator)
        loss.backward()  # type: ignore[no-untyped-call]
        norm = learner.descend(gradient_norm)
        yield {
            "imitation/loss": float(loss.detach()),
            "imitation/gradient_norm": norm,
            "imitation/target_ratio": best.measurement.objective_s(objective) / task.reference_s,
        }


def imitation_loss(
    policy: Policy, task: Task, target: Int64[torch.Tensor, " groups"], *, generator: torch.Generator
) -> Float32[torch.Tensor, ""]:
    """Minus the mean log-probability of the target in every pass, each pass given the policy's own sample of the pass before."""
    with torch.no_grad():
        sampled = policy.sample(task.tensors, num_samples=1, temperature=1.0, generator=generator).device[0]
    passes = len(sampled)
    rows = sampled[None].repeat(passes, 1, 1)
    diagonal = torch.arange(passes)
    rows[diagonal, diagonal] = target
    log_prob, _ = policy.evaluate(task.tensors, rows)
    return -log_prob[diagonal, diagonal].mean()


def region_loss(
    policy: Policy, task: Task, target: Int64[torch.Tensor, " groups"], free: Bool[torch.Tensor, "placements groups"]
) -> Float32[torch.Tensor, ""]:
    """Minus the mean log-probability of the target over the free groups, the others held where the target has them; each placement counts alike."""
    rows = target.expand(len(free), 1, -1)
    log_prob, _ = policy.evaluate(task.tensors, rows.contiguous(), held=~free)
    return -((log_prob[:, 0] * free).sum(dim=1) / free.sum(dim=1)).mean()


def searched(
    task: Task, *, evaluations: int, objective: Objective, seed: int, judge: JudgeNetwork | None = None, expert: Policy | None = None
) -> Int32[np.ndarray, " ops"]:
    """What a search finds for a task, decided op by op: where the step time counts, one that sees what a step waits for, and asks the judge where there is one.

    With an `expert` it starts from that policy's samples, too, and the policy takes part in it, with the judge of its own (expert iteration: Anthony et al., arXiv 1705.08439).
    """
    predictor = task.runtime if isinstance(task.runtime, Simulator) and objective == "step_time" else None
    if expert is not None and predictor is not None:
        return PolicySearch(
            expert, runtime=task.runtime, predictor=predictor, evaluations=evaluations, seed=seed, name="expert", revision=None
        )(task.graph, task.cluster).device
    search = LocalSearch(
        runtime=task.runtime,
        evaluations=evaluations,
        seed=seed,
        objective=objective,
        predictor=predictor,
        judge=None if predictor is None else judge_maker(judge),
    )
    return search(task.graph, task.cluster).device


def as_target(task: Task, op_device: Int32[np.ndarray, " ops"]) -> Incumbent:
    """A placement of ops as decisions of the task's groups, with equal devices in canonical order, so that equal tasks have equal targets."""
    group_device = canonical(group_decisions(task, op_device), task.cluster)
    device = task.grouping.expand(group_device.astype(np.int32))
    measurement = task.runtime(task.graph, task.cluster, Placement(device=device, origin=Origin(placer="search")))
    return Incumbent(device=device, group_device=torch.from_numpy(group_device), measurement=measurement, update=0)


def group_decisions(task: Task, op_device: Int32[np.ndarray, " ops"]) -> Int64[np.ndarray, " groups"]:
    """The device on which most of each group's work lies in a placement of ops."""
    work = op_time_s(task.graph, task.cluster).min(axis=1) + 1e-12
    cell = task.grouping.group_of_op.astype(np.int64) * task.cluster.num_devices + op_device
    total = np.bincount(cell, weights=work, minlength=task.grouping.num_groups * task.cluster.num_devices)
    return np.asarray(total.reshape(task.grouping.num_groups, -1).argmax(axis=1))


def canonical(group_device: Int64[np.ndarray, " groups"], cluster: Cluster) -> Int64[np.ndarray, " groups"]:
    """The same placement with interchangeable devices renumbered in the order in which groups first use them.

    Devices are taken as interchangeable when they have one kind and one memory and exchanging them leaves bandwidths and latencies as they are, and channels but for their names.
    """
    order = list(dict.fromkeys(group_device.tolist()))
    order += [device for device in range(cluster.num_devices) if device not in order]
    renumbered = np.empty(cluster.num_devices, np.int64)
    free = set(range(cluster.num_devices))
    for device in order:
        chosen = min(other for other in free if _interchangeable(cluster, device, other))
        renumbered[device] = chosen
        free.remove(chosen)
    return np.asarray(renumbered[group_device])


def _interchangeable(cluster: Cluster, one: int, other: int) -> bool:
    if cluster.devices[one].kind != cluster.devices[other].kind or cluster.memory_bytes[one] != cluster.memory_bytes[other]:
        return False
    swapped = np.arange(cluster.num_devices)
    swapped[[one, other]] = other, one
    pairs = ~np.eye(cluster.num_devices, dtype=bool)
    before, after = cluster.channel[pairs], cluster.channel[np.ix_(swapped, swapped)][pairs]
    renamed = set(zip(before.tolist(), after.tolist(), strict=True))
    same_channels = len(renamed) == len(np.unique(before)) == len(np.unique(after)) and bool(
        ((before == Cluster.NO_CHANNEL) == (after == Cluster.NO_CHANNEL)).all()
    )
    return same_channels and all(
        bool((matrix[pairs] == matrix[np.ix_(swapped, swapped)][pairs]).all())
        for matrix in (cluster.bandwidth_bytes_per_s, cluster.latency_s)
    )
