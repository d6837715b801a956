"""The runtimes behind one fine-tuning: who predicts, who proposes what is worth a measurement, who judges."""

import dataclasses
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import numpy as np
from jaxtyping import Int32

from gdp.cli.comparisons import kept_in
from gdp.cli.finetune_config import MeasuredConfig, SimulatorConfig
from gdp.cli.measured import MeasuredRuntime, measured_runtime
from gdp.cli.model import Model
from gdp.cluster import Cluster
from gdp.errors import InputError
from gdp.graph import Graph
from gdp.learn.finalists import Compare, Occasion
from gdp.measurement import Measurement, MeasurementBatch, Objective, Runtime, stack
from gdp.placement import Placement
from gdp.runtime.fingerprint import changes, fingerprint
from gdp.runtime.handovers import measured_hand_overs, with_core_latency
from gdp.runtime.journal import Journal
from gdp.runtime.measuring import SPREAD_S
from gdp.runtime.pool import Pool, Seat
from gdp.runtime.profile import Profile, check_covers, read_profile, write_profile
from gdp.runtime.screened import ScreenedRuntime
from gdp.runtime.simulator import Simulator
from gdp.runtime.timing import Comparison, Protocol

JOURNAL = "journal.jsonl"
PROFILE = "profile.json"
COMPARISONS = "comparisons.json"


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class Judges:
    """One graph's runtimes."""

    graph: Graph
    """the model's, with the op times that were measured."""
    cluster: Cluster
    """with the latency of hand-overs between cores that was measured in steps, where times are measured."""
    predictor: Simulator
    """simulates."""
    proposed: Runtime
    """evaluates a batch of what the policy proposes; a screened one measures a few of it."""
    judge: Runtime
    """evaluates every row it is given."""
    screened: ScreenedRuntime | None
    """`proposed`, where times are measured: its state belongs into a snapshot."""
    compare_all_cores: Callable[[Placement], Comparison | None] | None
    """times a placement in turn with the unplaced program on all CPU cores, where times are measured."""
    compare: Compare | None
    """times two placements in turn, where times are measured."""


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class _OneByOne:
    """A `Runtime` that hands rows to a screened one singly, so that each is measured."""

    screened: ScreenedRuntime

    def __call__(self, graph: Graph, cluster: Cluster, placement: Placement) -> Measurement:
        return self.screened(graph, cluster, placement)

    def batch(self, graph: Graph, cluster: Cluster, device: Int32[np.ndarray, "batch ops"]) -> MeasurementBatch:
        return stack([self.screened.batch(graph, cluster, row[None])[0] for row in device])


@contextmanager
def open_judges(
    config: SimulatorConfig | MeasuredConfig, model: Model, cluster: Cluster, *, objective: Objective, folder: Path
) -> Iterator[Judges]:
    """The runtimes that `config` asks for; a real one is ended on leaving. Its profile and its journal of measurements are kept in `folder`.

    Measured times need a model with a program (`refuse_other_programs`).
    """
    if isinstance(config, SimulatorConfig):
        simulator = Simulator(dispatch=config.dispatch or model.dispatch, num_threads=config.num_threads)
        yield Judges(
            graph=model.graph,
            cluster=cluster,
            predictor=simulator,
            proposed=simulator,
            judge=simulator,
            screened=None,
            compare=None,
            compare_all_cores=None,
        )
        return
    with Journal(folder / JOURNAL) as journal:
        earlier = kept_profile(model, cluster, folder / PROFILE)
        known = journal.incumbent(model.graph, cluster if earlier is None else calibrated(cluster, earlier))
        kept = folder / COMPARISONS
        protocol = Protocol(max_warm_up=5, max_time_s=config.max_time_s, spread_s=min(SPREAD_S, config.max_time_s / 2))
        seats = [tuple(device.name for device in cluster.devices), *config.also_on]

        with ExitStack() as runtimes:

            def opened() -> MeasuredRuntime:
                one = measured_runtime(
                    model,
                    timeout_s=config.timeout_s,
                    protocol=protocol,
                    incumbent=known,
                    compiled=config.compiled,
                    memory_share=1 / len(seats),
                )
                runtimes.callback(one.close)
                return one

            runtime = opened()
            pool = Pool(
                [Seat(runtime=opened() if number else runtime, devices=devices) for number, devices in enumerate(seats)], incumbent=known
            )
            profile = earlier or new_profile(model, cluster, folder / PROFILE, runtime)
            graph, measured_cluster = model.graph.with_measured_time(profile.op_time_s), calibrated(cluster, profile)
            simulator = Simulator(dispatch="program_order", num_threads=config.num_threads)
            screened = ScreenedRuntime(
                predictor=simulator,
                runtime=pool,
                measured_per_batch=config.measured_per_update,
                journal=journal,
                objective=objective,
            )

            def compare(candidate: Placement, incumbent: Placement, *, occasion: Occasion) -> Comparison | None:
                return kept_in(kept, occasion, [candidate, incumbent], lambda: runtime.compare(graph, cluster, candidate, incumbent))

            def compare_all_cores(placement: Placement) -> Comparison | None:
                return kept_in(kept, "all cores", [placement], lambda: runtime.compare_with_all_cores(graph, cluster, placement))

            yield Judges(
                graph=graph,
                cluster=measured_cluster,
                predictor=simulator,
                proposed=screened,
                judge=_OneByOne(screened=screened),
                screened=screened,
                compare=compare,
                compare_all_cores=compare_all_cores,
            )


def new_profile(model: Model, cluster: Cluster, path: Path, runtime: MeasuredRuntime) -> Profile:
    """Measures the model's ops and the hand-overs in its steps, and keeps them at `path`."""
    op_time_s = runtime.profile(model.graph, cluster)
    hand_overs = measured_hand_overs(model.graph.with_measured_time(op_time_s), cluster, runtime, dispatch="program_order", seed=0)
    profile = Profile(
        graph_sha256=model.graph.sha256,
        dispatch="program_order",
        op_time_s=op_time_s,
        links={},
        fingerprint=fingerprint([device.name for device in cluster.devices]),
        hand_overs=hand_overs,
    )
    write_profile(path, profile)
    return profile


def kept_profile(model: Model, cluster: Cluster, path: Path) -> Profile | None:
    """What an earlier start has measured; None where there was none.

    Raises `InputError` when the file is wrong, or of another machine: times of two machines do not mix.
    """
    if not path.exists():
        return None
    profile = read_profile(path, model.graph)
    check_covers(profile, cluster, path)
    changed = changes(profile.fingerprint, fingerprint([device.name for device in cluster.devices]))
    if changed:
        raise InputError(
            f"{path} was measured elsewhere, or before something changed ({'; '.join(changed)}); start a run in another folder"
        )
    return profile


def calibrated(cluster: Cluster, profile: Profile) -> Cluster:
    """The cluster with what hand-overs between cores were measured to take, where they were."""
    return cluster if profile.hand_overs is None else with_core_latency(cluster, profile.hand_overs.latency_s)
