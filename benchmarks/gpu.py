"""A model that does not fit a GPU, on the GPU and the processor together: real-timing fine-tuning against what an engineer would do without gdp.

    python benchmarks/gpu.py [--models mixture_of_experts vision] [--devices cuda:0 cpu:0-15] [--share 0.5] [--evaluations 400] [--out FILE]

The first device's memory is capped at `--share` of what a step on it alone would take, so the placement matters; a placement that takes more there is out of memory, as
measured. Then `finetune.py` with measured times; what it found is timed in turn with all ops on the last device, with the contiguous split by memory and with accelerate's
automatic device map. Accelerate's own automatic offload (parameters that do not fit are copied to the GPU in every step) and the plain module on the whole GPU are timed by
themselves, where there is a GPU (and the package `accelerate`). On a machine without one, name sets of cores and the small models: all but those two runs.
"""

import argparse
import dataclasses
import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping
from importlib.util import find_spec
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np
import torch
from rich.console import Console
from rich.table import Table

from gdp.atomic_file import write_text
from gdp.baselines.automatic_device_map import AutomaticDeviceMap
from gdp.baselines.contiguous import Contiguous
from gdp.baselines.single_device import single_devices
from gdp.cli.model import Model, resolve_model
from gdp.cli.report_data import environment
from gdp.cli.runtimes import PROFILE, kept_profile
from gdp.cluster import Cluster, write_cluster
from gdp.graph import Graph
from gdp.measurement import Measurement, Status
from gdp.placement import Origin, Placement, read_placement
from gdp.runtime.core_sets import cores_of
from gdp.runtime.exclusive import exclusively
from gdp.runtime.fingerprint import fingerprint
from gdp.runtime.gpu_identity import gpu_identity
from gdp.runtime.local import local_cluster
from gdp.runtime.pytorch import PyTorchRuntime
from gdp.runtime.simulator import Simulator
from gdp.runtime.timing import Protocol, alone, median_interval

HERE = Path(__file__).parent
MODELS = ("mixture_of_experts", "vision", "small_mixture_of_experts", "small_vision")


def capped(model: Model, cluster: Cluster, share: float) -> Cluster:
    """The cluster whose first device has this share of the memory that a step on it alone would take."""
    boundless = tuple(dataclasses.replace(device, memory_bytes=2**50) for device in cluster.devices)
    on_first = np.zeros((1, model.graph.num_ops), np.int32)
    simulated = Simulator(dispatch=model.dispatch).batch(model.graph, dataclasses.replace(cluster, devices=boundless), on_first)
    most = int(share * simulated.peak_memory_bytes[0, 0])
    first = dataclasses.replace(cluster.devices[0], memory_bytes=min(most, cluster.devices[0].memory_bytes))
    return dataclasses.replace(cluster, name=f"{cluster.name}, {first.name} capped", devices=(first, *cluster.devices[1:]))


def finetuned(name: str, cluster: Cluster, folder: Path, evaluations: int) -> tuple[dict[str, Any], float]:
    """What `finetune.py` with measured times leaves behind, and its seconds."""
    write_cluster(folder / "cluster.yaml", cluster)
    overrides = [
        f"workload={HERE / 'gpu_models.py'}:{name}",
        f"cluster={folder / 'cluster.yaml'}",
        "runtime=pytorch",
        "runtime.timeout_s=600",
        f"finetune.evaluations={evaluations}",
        f"finetune.search_evaluations={evaluations}",
        f"run_dir={folder / 'run'}",
    ]
    begin = perf_counter()
    subprocess.run([sys.executable, str(HERE.parent / "finetune.py"), *overrides], check=True)
    result: dict[str, Any] = json.loads((folder / "run" / "result.json").read_text())
    return result, perf_counter() - begin


def simple_placements(graph: Graph, cluster: Cluster) -> dict[str, Placement]:
    """What an engineer would do without gdp."""
    simulator = Simulator(dispatch="program_order")
    last = single_devices(graph, cluster)[-1]
    return {
        f"all on {cluster.devices[-1].name}": Placement(device=last.copy(), origin=Origin(placer="single-device")),
        "contiguous by memory": Contiguous(runtime=simulator, balance="memory")(graph, cluster),
        "accelerate's device map": AutomaticDeviceMap(runtime=simulator)(graph, cluster),
    }


def against(runtime: PyTorchRuntime, graph: Graph, cluster: Cluster, found: Placement, other: Placement) -> dict[str, Any]:
    """Another placement, measured and timed in turn with what was found."""
    measured = runtime(graph, cluster, other)
    compared = runtime.compare(graph, cluster, found, other) if measured.status == Status.OK else None
    return {**_figures(measured), "found_over_this": None if compared is None else _finite(dataclasses.asdict(compared))}


def plain_step(module: torch.nn.Module, inputs: tuple[torch.Tensor, ...]) -> Callable[[], float]:
    """A step as PyTorch users write it, with the GPU synchronised."""

    @torch.inference_mode()
    def step() -> float:
        torch.cuda.synchronize()
        begin = perf_counter()
        module(*inputs)
        torch.cuda.synchronize()
        return perf_counter() - begin

    return step


def without_placement(name: str, cap_bytes: int, gpu: str) -> dict[str, Any]:
    """The plain module on the whole GPU, and under accelerate's automatic offload with the GPU's memory capped; each with nothing beside it."""
    sys.path.insert(0, str(HERE))
    import gpu_models

    module, inputs = vars(gpu_models)[name]()
    there = tuple(value.to(gpu) for value in inputs)
    rows: dict[str, Any] = {"the whole model on the GPU, not capped": _alone(plain_step(module.to(gpu), there))}
    module = module.to("cpu")
    torch.cuda.empty_cache()
    if find_spec("accelerate") is None:
        return {**rows, "accelerate's automatic offload": "accelerate is not installed"}
    from accelerate import dispatch_model, infer_auto_device_map

    number = int(gpu.partition(":")[2])
    limits = {number: cap_bytes, "cpu": 2**50}
    device_map = infer_auto_device_map(module, max_memory=limits, no_split_module_classes=["TransformerLayer", "ResidualBlock"])
    offloaded = dispatch_model(module, device_map=device_map, main_device=number, force_hooks=True)
    return {**rows, "accelerate's automatic offload": _alone(plain_step(offloaded, there))}


def run(name: str, options: argparse.Namespace, console: Console) -> dict[str, Any]:
    """One model."""
    model = resolve_model(f"{HERE / 'gpu_models.py'}:{name}")
    assert isinstance(model.program, torch.export.ExportedProgram)
    cluster = capped(model, local_cluster(options.devices), options.share)
    cap_bytes = cluster.devices[0].memory_bytes
    console.print(f"{name}: {model.graph.num_ops} ops; {cluster.devices[0].name} may take {cap_bytes / 2**30:.2f} GiB")
    with tempfile.TemporaryDirectory() as text:
        folder = Path(text)
        result, finetune_s = finetuned(name, cluster, folder, options.evaluations)
        found = read_placement(folder / "run" / "placement.json", model.graph, cluster)
        journal = (folder / "run" / "journal.jsonl").read_text().splitlines()
        with PyTorchRuntime(model.program, model.example_inputs, timeout_s=600.0) as runtime:
            profile = kept_profile(model, cluster, folder / "run" / PROFILE)
            assert profile is not None, "fine-tuning has measured one"
            graph = model.graph.with_measured_time(profile.op_time_s)
            itself = runtime(graph, cluster, found)
            others = {label: against(runtime, graph, cluster, found, one) for label, one in simple_placements(graph, cluster).items()}
    row: dict[str, Any] = {
        "model": name,
        "num_ops": model.graph.num_ops,
        "param_bytes": int(model.graph.param_bytes.sum()),
        "cap_bytes": cap_bytes,
        "cluster": [device.name for device in cluster.devices],
        "found": {**_figures(itself), "name": result["best"], "verdict": result["verdict"]},
        "finetune_s": finetune_s,
        "measurements": len(journal),
        "candidates": result["candidates"],
        "others": others,
    }
    gpu = cluster.devices[0].name
    if gpu.startswith("cuda:"):
        cores = [core for device in cluster.devices[1:] for core in cores_of(device.name)]
        with exclusively(cores, [gpu_identity(int(gpu.partition(":")[2]))]):
            row["without placement"] = without_placement(name, cap_bytes, gpu)
    return row


def _figures(measured: Measurement) -> dict[str, Any]:
    times = {"step_time_s": measured.step_time_s, "low_s": measured.step_time_low_s, "high_s": measured.step_time_high_s}
    return {
        "status": measured.status.name,
        "detail": measured.detail,
        **_finite(times),
        "peak_memory_bytes": measured.peak_memory_bytes.tolist(),
    }


def _finite(figures: Mapping[str, float]) -> dict[str, float | None]:
    """As JSON has it: what is infinite is null."""
    return {what: value if np.isfinite(value) else None for what, value in figures.items()}


def _alone(step: Callable[[], float]) -> dict[str, float | None]:
    interval = median_interval(alone(step, Protocol(max_pairs=48, precision=0.0)))
    return _finite({"step_time_s": interval.median, "low_s": interval.low, "high_s": interval.high})


def main() -> None:
    """Runs, prints the table, writes the file."""
    has_gpu = torch.cuda.is_available()
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--models", nargs="+", choices=MODELS, default=list(MODELS[:2] if has_gpu else MODELS[2:]))
    cores = sorted(os.sched_getaffinity(0))
    default = ["cuda:0", f"cpu:{','.join(map(str, cores))}"] if has_gpu else [f"cpu:{core}" for core in cores[:2]]
    parser.add_argument("--devices", nargs="+", default=default, help="the first one's memory is capped")
    parser.add_argument("--share", type=float, default=0.5, help="of what the model takes on the first device alone")
    parser.add_argument("--evaluations", type=int, default=400)
    parser.add_argument("--out", type=Path, help="by default benchmarks/results/gpu_CARD.json")
    options = parser.parse_args()
    console = Console(width=150)
    machine = fingerprint(options.devices)
    card = machine.get(f"{options.devices[0]} model", "none")
    rows = [run(name, options, console) for name in options.models]
    table = Table("model", "placement", "ms", "found over it", "peak on the first device, GiB")
    for row in rows:
        table.add_row(row["model"], f"found: {row['found']['name']}", *_cells(row["found"]))
        for label, one in row["others"].items():
            table.add_row("", label, *_cells(one))
        for label, one in row.get("without placement", {}).items():
            table.add_row("", label, one if isinstance(one, str) else f"{one['step_time_s'] * 1e3:.2f}", "", "")
    console.print(table)
    out = options.out or HERE / "results" / f"gpu_{re.sub('[^a-z0-9]+', '_', card.lower()).strip('_')}.json"
    document = {
        "environment": environment(),
        "machine": machine,
        "share": options.share,
        "evaluations": options.evaluations,
        "models": rows,
    }
    write_text(out, json.dumps(document, indent=1, allow_nan=False) + "\n")
    console.print(f"wrote {out}", markup=False)


def _cells(figures: dict[str, Any]) -> tuple[str, str, str]:
    seconds, compared = figures["step_time_s"], figures.get("found_over_this")
    ratio = "" if compared is None else f"{compared['ratio']:.3f} [{compared['low']:.3f}, {compared['high']:.3f}]"
    return (
        figures["status"].lower() if seconds is None else f"{seconds * 1e3:.2f}",
        ratio,
        f"{figures['peak_memory_bytes'][0] / 2**30:.2f}",
    )


if __name__ == "__main__":
    main()
