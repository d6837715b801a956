"""The card of a checkpoint: what it is, how it was made, what it was measured to do. Generated from figures, never written by hand."""

import dataclasses
import math
import re

import yaml

from gdp.errors import InputError


def check_name(name: str) -> None:
    """Raises `InputError` when a checkpoint cannot have this name."""
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]{0,95}", name):
        raise InputError(
            f"the checkpoint name {name[:200]!r} is none: at most 96 letters, digits, dots, dashes or underscores, the first a letter or digit"
        )


def base_model_of(name: str | None, revision: str | None) -> str | None:
    """How a card names the policy that a training went on from; `None` for a new one, and for a folder, which nobody else has."""
    return f"{name}@{revision}" if name and re.fullmatch(r"[\w.-]+(/[\w.-]+)?", name) else None


@dataclasses.dataclass(frozen=True, kw_only=True)
class Result:
    """What the policy reached on one graph, beside the best simple method."""

    workload: str
    cluster: str
    split: str
    """`pretraining`, `validation` or `hold-out`."""
    evaluations: int
    """placements that were sampled and simulated or measured."""
    step_time_s: float
    baseline: str
    """name of the best simple method."""
    baseline_s: float


@dataclasses.dataclass(frozen=True, kw_only=True)
class Card:
    """The figures of a checkpoint's card."""

    name: str
    """immutable: `gdp-base-v1`; another training gets another name."""
    summary: str
    """one paragraph: what it places, and what it is good for."""
    recipe: str
    """the command that trained it."""
    commit: str
    """the source's commit."""
    corpus: str
    """the graphs and clusters it was trained on."""
    seeds: tuple[int, ...]
    results: tuple[Result, ...]
    limits: str
    """where it is known not to help."""
    base_model: str | None = None
    """`org/name@revision` of the policy it was fine-tuned from."""
    license: str = "apache-2.0"

    def __post_init__(self) -> None:
        check_name(self.name)
        for result in self.results:
            if not (0 < result.step_time_s < math.inf and 0 < result.baseline_s < math.inf):
                raise InputError(f"the result of {self.name} on {result.workload} has a time that is not positive and finite")

    @property
    def splits(self) -> tuple[str, ...]:
        """Those that there are results of, in their order."""
        return tuple(dict.fromkeys(result.split for result in self.results))

    def geometric_mean_ratio(self, split: str) -> float:
        """Of step time to the best simple method's over one split; below 1 is better than it. NaN without results."""
        ratios = [math.log(result.step_time_s / result.baseline_s) for result in self.results if result.split == split]
        return math.exp(sum(ratios) / len(ratios)) if ratios else math.nan


@dataclasses.dataclass(frozen=True, kw_only=True)
class WeightsFacts:
    """What is true of the weights file; the tests compare it with the file."""

    num_parameters: int
    weights_bytes: int
    weights_sha256: str


def to_markdown(card: Card, facts: WeightsFacts) -> str:
    """`README.md` as the Hugging Face Hub reads it: YAML front matter, then the text."""
    front: dict[str, object] = {
        "library_name": "gdp",
        "license": card.license,
        "pipeline_tag": "graph-ml",
        "tags": ["device-placement", "graph-neural-network", "reinforcement-learning"],
    }
    if card.base_model is not None:
        front |= {"base_model": card.base_model.partition("@")[0], "base_model_relation": "finetune"}
    if card.results:
        front["model-index"] = [{"name": card.name, "results": [_of_split(card, split) for split in card.splits]}]
    front["gdp"] = dataclasses.asdict(facts)
    matter = yaml.safe_dump(front, sort_keys=False, allow_unicode=True)
    rows = [
        f"| {_cell(r.workload)} | {_cell(r.cluster)} | {_cell(r.split)} | {r.evaluations} | {1e3 * r.step_time_s:.4g} | "
        f"{1e3 * r.baseline_s:.4g} ({_cell(r.baseline)}) | {r.step_time_s / r.baseline_s:.3f} |"
        for r in card.results
    ]
    means = [f"Geometric mean on {split}: {card.geometric_mean_ratio(split):.3f}." for split in card.splits]
    results = (
        [
            "| workload | cluster | split | evaluations | step time (ms) | best simple method (ms) | ratio |",
            "|---|---|---|--:|--:|--:|--:|",
            *rows,
            "",
            "A ratio below 1 is faster than the best simple method.",
            *means,
        ]
        if rows
        else ["None yet."]
    )
    fence = "`" * (1 + max((len(run) for run in re.findall("`+", card.recipe)), default=2))
    lines = [
        f"# {card.name}",
        "",
        card.summary,
        "",
        "```python",
        "import gdp.hub",
        "",
        f'policy = gdp.hub.load("{card.name}")  # or "organisation/{card.name}@revision"',
        "```",
        "",
        "## Training",
        "",
        f"Corpus: {card.corpus}",
        "",
        *([f"Fine-tuned from `{card.base_model}`.", ""] if card.base_model is not None else []),
        f"Source commit `{card.commit}`, seeds {', '.join(map(str, card.seeds))}, by",
        "",
        fence,
        card.recipe,
        fence,
        "",
        "## Results",
        "",
        *results,
        "",
        "## Limits",
        "",
        card.limits,
        "",
        "## Files",
        "",
        f"`model.safetensors`: {facts.num_parameters} parameters, {facts.weights_bytes} bytes, sha256 `{facts.weights_sha256}`. "
        "`config.json` holds the architecture and the features with their op vocabulary. Loading is strict and executes nothing.",
    ]
    return f"---\n{matter}---\n" + "\n".join(lines) + "\n"


def _of_split(card: Card, split: str) -> dict[str, object]:
    """An entry of `model-index`, as huggingface-hub's `ModelCard` reads evaluation results."""
    ratios = [result.step_time_s / result.baseline_s for result in card.results if result.split == split]
    metrics = {
        "geometric mean of step time over the best simple method's": card.geometric_mean_ratio(split),
        "worst step time over the best simple method's": max(ratios),
    }
    return {
        "task": {"type": "graph-ml", "name": "device placement, simulated"},
        "dataset": {
            "type": "gdp-catalog",
            "name": f"{split} split of gdp's catalog, {len(ratios)} pairs of graph and cluster",
            "split": split,
        },
        "metrics": [{"type": "step-time-ratio", "name": name, "value": round(value, 4)} for name, value in metrics.items()],
    }


def _cell(value: str) -> str:
    return " ".join(value.replace("|", "\\|").split())
