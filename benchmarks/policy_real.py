"""Fine-tuning with measured step times on this machine's first two cores: what it found against the best placement that needs no learning, and what it spent.

    python benchmarks/policy_real.py [--models two_u_nets lstm_training keras_two_towers_training keras_branching_convolutions]
        [--evaluations 400] [--seeds 1] [--out benchmarks/results/policy_real.json]

Every model goes through `finetune.py`, as a user's would: simple placements, METIS, list scheduling and local search in the simulator with measured op times are candidates and
are measured, too; the finalists are timed in turn, step by step, with the best single core and with the best simple placement (docs/real-timing.md). *Measured* counts the
placements that really ran. Run it with nothing else on the machine.
"""

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from time import perf_counter
from typing import Any

import torch
from rich.console import Console
from rich.table import Table
from torch import nn

from gdp.atomic_file import write_text
from gdp.capture.tensorflow_program import TensorFlowProgram
from gdp.capture.torch_training import TrainingStep
from gdp.cli.report_data import environment
from gdp.workloads.torch_modules import TwoUNets, UnrolledLSTM

HERE = Path(__file__).parent


def two_u_nets() -> tuple[nn.Module, tuple[torch.Tensor, ...]]:
    """Inference of two U-Nets side by side, joined at the end."""
    from real_models import initialised

    generator = torch.Generator().manual_seed(1)
    return initialised(TwoUNets(3, 16)).eval(), tuple(torch.randn((4, 3, 96, 96), generator=generator) for _ in range(2))


def lstm_training() -> TrainingStep:
    """A training step of a two-layer unrolled LSTM."""
    from real_models import initialised

    generator = torch.Generator().manual_seed(1)
    module = initialised(UnrolledLSTM(2, 256, 1000)).train()
    return TrainingStep(
        module=module,
        inputs=(torch.randint(0, 1000, (32, 8), generator=generator),),
        targets=(torch.randint(0, 1000, (32 * 8,), generator=generator),),
        loss=lambda output, target: nn.functional.cross_entropy(output.flatten(0, 1), target),
        optimizer=torch.optim.SGD(module.parameters(), lr=1e-6, momentum=0.9),
    )


def keras_two_towers_training() -> TensorFlowProgram:
    """A training step of a Keras model with two towers."""
    from real_tensorflow_models import real_tensorflow_models

    return real_tensorflow_models()["Keras two towers, training"]()


def keras_branching_convolutions() -> TensorFlowProgram:
    """Inference of a Keras model in the manner of Inception."""
    from real_tensorflow_models import real_tensorflow_models

    return real_tensorflow_models()["Keras branching convolutions"]()


MODELS = {
    "two_u_nets": "pytorch",
    "lstm_training": "pytorch",
    "keras_two_towers_training": "tensorflow",
    "keras_branching_convolutions": "tensorflow",
}
"""The runtime of each."""


def finetuned(model: str, *, evaluations: int, seed: int) -> dict[str, Any]:
    """One run of `finetune.py`."""
    with tempfile.TemporaryDirectory() as text:
        folder = Path(text) / "run"
        overrides = [f"workload={HERE / 'policy_real.py'}:{model}", f"runtime={MODELS[model]}", f"seed={seed}", f"run_dir={folder}"]
        overrides += ["cluster=local", f"finetune.evaluations={evaluations}", f"finetune.search_evaluations={evaluations}"]
        began = perf_counter()
        subprocess.run([sys.executable, str(HERE.parent / "finetune.py"), *overrides], check=True)
        result: dict[str, Any] = json.loads((folder / "result.json").read_text())
        measured = len((folder / "journal.jsonl").read_text().splitlines())
    keys = ("verdict", "best", "candidates", "against_one_device", "against_simple_placement", "against_all_cores_unplaced")
    return {"model": model, "seed": seed, "seconds": perf_counter() - began, "measured": measured} | {key: result[key] for key in keys}


def shown(compared: dict[str, Any] | None) -> str:
    """A ratio with its interval."""
    if compared is None:
        return "-"
    return f"{compared['ratio']:.3f} [{compared['low']:.3f}, {compared['high']:.3f}]"


def main() -> None:
    """Runs what is missing, writes the file run by run, prints the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--models", nargs="+", choices=list(MODELS), default=list(MODELS))
    parser.add_argument("--evaluations", type=int, default=400)
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--out", type=Path, default=HERE / "results" / "policy_real.json")
    options = parser.parse_args()
    earlier = json.loads(options.out.read_text()) if options.out.exists() else {"evaluations": options.evaluations, "rows": []}
    rows: list[dict[str, Any]] = earlier["rows"]
    if earlier["evaluations"] != options.evaluations:
        parser.error(f"{options.out} has rows with {earlier['evaluations']} evaluations; write into another file")
    done = {(row["model"], row["seed"]) for row in rows}
    for seed in range(options.seeds):
        for model in options.models:
            if (model, seed) not in done:
                rows.append(finetuned(model, evaluations=options.evaluations, seed=seed))
                document = {"evaluations": options.evaluations, "environment": environment(), "rows": rows}
                write_text(options.out, json.dumps(document, indent=1) + "\n")
    table = Table(
        "model", "seed", "best", "over the best single core", "over the best simple placement", "over all cores unplaced", "measured", "s"
    )
    for row in rows:
        against = [shown(row[f"against_{other}"]) for other in ("one_device", "simple_placement", "all_cores_unplaced")]
        table.add_row(row["model"], str(row["seed"]), row["best"], *against, str(row["measured"]), f"{row['seconds']:.0f}")
    Console(width=180).print(table)


if __name__ == "__main__":
    main()
