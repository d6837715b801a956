"""The runtimes behind one fine-tuning: who predicts, who proposes what is worth a measurement, who judges."""

import dataclasses
import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
from jaxtyping import Int32
from pydantic import TypeAdapter

from gdp.atomic_file import write_text
from gdp.bounded_file import read_bounded
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
from gdp.plain_json import parse_json
from gdp.runtime.journal import Journal
from gdp.runtime.screened import ScreenedRuntime
from gdp.runtime.simulator import Simulator
from gdp.runtime.timing import Comparison, Protocol

JOURNAL = "journal.jsonl"
PROFILE = "profile.json"
COMPARISONS = "comparisons.json"
_PROFILE_FILE = TypeAdapter(dict[str, list[float]])
_MAX_PROFILE_BYTES = 2**30


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class Judges:
    """One graph's runtimes."""

    graph: Graph
    """the model's, with the op times that were measured."""
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
        simulator = Simulator(dispatch=config.dispatch, num_threads=config.num_threads)
        yield Judges(
            graph=model.graph, predictor=simulator, proposed=simulator, judge=simulator, screened=None, compare=None, compare_all_cores=None
        )
        return
    with Journal(folder / JOURNAL) as journal:
        known, kept = journal.incumbent(model.graph, cluster), folder / COMPARISONS
        protocol = Protocol(max_warm_up=5, max_time_s=config.max_time_s)
        with measured_runtime(model, timeout_s=config.timeout_s, protocol=protocol, incumbent=known) as runtime:
            graph = _profiled(model.graph, cluster, runtime, folder / PROFILE)
            simulator = Simulator(dispatch="program_order", num_threads=config.num_threads)
            screened = ScreenedRuntime(
                predictor=simulator,
                runtime=runtime,
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
                predictor=simulator,
                proposed=screened,
                judge=_OneByOne(screened=screened),
                screened=screened,
                compare=compare,
                compare_all_cores=compare_all_cores,
            )


def _profiled(graph: Graph, cluster: Cluster, runtime: MeasuredRuntime, path: Path) -> Graph:
    """The graph with measured op times: those in the file of an earlier start, else newly measured and kept there."""
    if not path.exists():
        profile = runtime.profile(graph, cluster)
        write_text(path, json.dumps({kind: seconds.tolist() for kind, seconds in profile.items()}) + "\n")
    return graph.with_measured_time(read_profile(path, graph, cluster))


def read_profile(path: Path, graph: Graph, cluster: Cluster) -> dict[str, np.ndarray]:
    """Measured seconds per op for each device kind, `{kind: [ops]}`. Raises `InputError` when the file holds anything else."""
    content = read_bounded(path, what="the profile", advice="delete it and start anew", max_bytes=_MAX_PROFILE_BYTES)
    try:
        seconds = _PROFILE_FILE.validate_python(parse_json(content), strict=True)
    except ValueError as error:
        reason = str(error).splitlines()[0]
        raise InputError(f"the profile {path} cannot be read: {reason}; delete it and start anew") from error
    measured = {kind: np.array(values, np.float64) for kind, values in seconds.items()}
    whole = all(
        each.shape == (graph.num_ops,) and np.isfinite(each).all() and (each >= 0).all() and each.max() > 0 for each in measured.values()
    )
    if set(measured) != set(cluster.kinds) or not whole:
        raise InputError(
            f"the profile {path} does not hold {graph.num_ops} seconds for each of the device kinds {', '.join(cluster.kinds)}; "
            "delete it and start anew"
        )
    return measured
