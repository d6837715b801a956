"""`gdp demo`: the main job on real input, from capture to report."""

import os
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console


def demo(
    out: Annotated[Path, typer.Option(help="folder for the two runs, which start anew, and report.html")] = Path("runs/demo"),
    seed: Annotated[int, typer.Option(min=0, max=2**63 - 1)] = 0,
) -> None:
    """Capture two real models, place and fine-tune them, one with step times measured on this machine, and write one report."""
    import shutil
    import time

    from gdp.cli.fill import fill
    from gdp.cli.finetune_config import FinetuneSettings
    from gdp.cli.finetuning import Finished, run
    from gdp.cli.hydra_config import composed, resolved
    from gdp.cli.model import Model, resolve_model
    from gdp.cli.report_data import write_page
    from gdp.workloads.inception_v3 import inception_v3_training

    console = Console(soft_wrap=True, highlight=False)
    began = time.monotonic()

    def step(name: str, experiment: str, model: Model) -> Finished:
        console.print(f"{name}: {model.graph.num_ops} ops from {model.graph.source}", markup=False)
        folder = out / experiment
        if os.path.exists(folder / "run_id"):
            shutil.rmtree(folder)
        config = resolved(composed("finetune", [f"experiment={experiment}", f"run_dir={folder}", f"seed={seed}"]))
        finished = run(fill(FinetuneSettings, config, where=""), config, model, title=name)
        if isinstance(finished, int):
            raise typer.Exit(finished)
        console.print(finished.table)
        console.print(finished.verdict + "\n", markup=False)
        return finished

    console.print("capturing Inception-V3's training step from Keras (half a minute) ...")
    inception = Model(graph=inception_v3_training(), program=None, example_inputs=())
    sections = [step("Inception-V3 training step, TensorFlow, simulated on 4 x P100", "demo_inception", inception).section]
    console.print("capturing a branching network from PyTorch ...")
    sections.append(step("Branching network, PyTorch, measured on this machine", "demo_branching", resolve_model("branching")).section)
    page = out / "report.html"
    write_page(page, "gdp demo", sections)
    console.print(f"done in {time.monotonic() - began:.0f} s; the report is {page}")
