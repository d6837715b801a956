"""Checkpoint folders: weights and everything needed to use them, written whole and read with suspicion.

A folder holds `model.safetensors`, `config.json`, the card `README.md`, and may hold `metrics.json` and `train_config.yaml`. Reading opens the first two
by their fixed names and nothing else, never runs what they say, and refuses what it does not know.
"""

import dataclasses
import hashlib
import json
import os
import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, get_type_hints

import torch
from pydantic import BaseModel, ConfigDict, Field, ValidationError, create_model
from safetensors import SafetensorError
from safetensors.torch import load as load_safetensors
from safetensors.torch import save as save_safetensors
from torch import Tensor

import gdp
from gdp.atomic_file import writing
from gdp.bounded_file import read_bounded
from gdp.errors import InputError
from gdp.features.config import FeatureConfig
from gdp.hub.card import Card, WeightsFacts, to_markdown
from gdp.plain_json import parse_json
from gdp.policy.config import PolicyConfig
from gdp.policy.policy import Policy

SCHEMA = 2
"""Of `config.json`; raised when an older reader would misunderstand a newer file."""

CONFIG, WEIGHTS, CARD, METRICS, TRAIN_CONFIG = "config.json", "model.safetensors", "README.md", "metrics.json", "train_config.yaml"
FILES = (CONFIG, WEIGHTS, CARD, METRICS, TRAIN_CONFIG)
"""All that a checkpoint may consist of; nothing else is uploaded, downloaded or read."""

MAX_CONFIG_BYTES = 2**20
MAX_WEIGHTS_BYTES = 2**30
MAX_SIZE = 2**16
"""No number of an architecture may exceed this."""
MAX_LAYERS = 256


@dataclasses.dataclass(frozen=True, kw_only=True)
class CheckpointConfig:
    """What `config.json` says."""

    architecture: str
    policy: PolicyConfig
    features: FeatureConfig
    facts: WeightsFacts
    revision: str
    """sha256 of the file, which holds that of the weights: of all that the policy is."""


def save_checkpoint(
    folder: Path,
    policy: Policy,
    *,
    card: Card,
    metrics: Mapping[str, Any] | None = None,
    train_config: str | None = None,
    replace: bool = False,
) -> None:
    """Writes a checkpoint folder: it appears whole or not at all.

    `metrics` becomes `metrics.json`; `train_config` is YAML text. Raises `InputError` when the folder exists and is not to be replaced, when its name belongs to a
    file or a link, or when a weight is not a number. A kill while replacing leaves the old folder, the new one, or the old one under its name with `.old` added.
    """
    if folder.is_symlink() or (folder.exists() and not folder.is_dir()):
        raise InputError(f"the checkpoint folder {folder} is a {'link' if folder.is_symlink() else 'file'}; move it away")
    if folder.exists() and not replace:
        raise InputError(f"the checkpoint folder {folder} exists already; a published checkpoint never changes: choose another name")
    state = {name: value.detach().cpu().contiguous() for name, value in policy.state_dict().items()}
    _check_weights(state, f"the policy to be saved in {folder}")
    weights = save_safetensors(state, metadata={"format": "pt"})
    facts = WeightsFacts(
        num_parameters=sum(value.numel() for value in state.values()),
        weights_bytes=len(weights),
        weights_sha256=hashlib.sha256(weights).hexdigest(),
    )
    document = {
        "schema": SCHEMA,
        "library": "gdp",
        "library_version": gdp.__version__,
        "architecture": "gdp",
        "policy": dataclasses.asdict(policy.config),
        "features": dataclasses.asdict(policy.features),
        **dataclasses.asdict(facts),
    }
    contents = {
        CONFIG: _json(document | {"config_sha256": config_sha256(document)}),
        WEIGHTS: weights,
        CARD: to_markdown(card, facts).encode(),
    }
    if metrics is not None:
        contents[METRICS] = _json(metrics)
    if train_config is not None:
        contents[TRAIN_CONFIG] = train_config.encode()
    _write_folder(folder, contents)


def load_checkpoint(folder: Path) -> Policy:
    """The policy in a checkpoint folder, in evaluation mode, on the CPU.

    Raises `InputError`, which names what is wrong and what to do, for everything that is missing, unknown, oversize, damaged or not a number.
    """
    config = read_config(folder)
    data = _read(folder / WEIGHTS, max_bytes=MAX_WEIGHTS_BYTES)
    digest = hashlib.sha256(data).hexdigest()
    if digest != config.facts.weights_sha256 or len(data) != config.facts.weights_bytes:
        raise InputError(
            f"{folder / WEIGHTS} has sha256 {digest[:12]}…, but {CONFIG} promises {config.facts.weights_sha256[:12]}…: "
            "the file is damaged or was changed; fetch the checkpoint again"
        )
    _check_header(data, folder / WEIGHTS)
    try:
        state = load_safetensors(data)
    except (SafetensorError, KeyError, ValueError, TypeError, RuntimeError, ArithmeticError) as error:
        raise InputError(f"{folder / WEIGHTS} is not a safetensors file ({error}); fetch the checkpoint again") from error
    _check_shapes(state, config, folder)
    _check_weights(state, str(folder / WEIGHTS))
    policy = _build(config)
    policy.load_state_dict(state, strict=True)
    return policy.eval()


def files_of(folder: Path) -> list[Path]:
    """Those of its files that a checkpoint may consist of."""
    return [folder / name for name in FILES if (folder / name).is_file()]


def read_config(folder: Path) -> CheckpointConfig:
    """Reads and checks `config.json` alone. Raises `InputError` as `load_checkpoint` does."""
    path = folder / CONFIG
    data = _read(path, max_bytes=MAX_CONFIG_BYTES)
    try:
        raw = parse_json(data)
    except ValueError as error:
        raise InputError(f"{path} is not JSON: {error}; fetch the checkpoint again") from error
    if not isinstance(raw, dict):
        raise InputError(f"{path} must hold a JSON object; fetch the checkpoint again")
    if b"_target_" in data:
        raise InputError(f"{path} carries `_target_`, which asks for code to be run; gdp never runs what a checkpoint says: do not use it")
    if isinstance(raw.get("schema"), int) and raw["schema"] > SCHEMA:
        raise InputError(
            f"{path} has schema {raw['schema']}, newer than {SCHEMA}, the newest this gdp {gdp.__version__} reads; upgrade gdp"
        )
    try:
        document = _document().model_validate_json(data)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        place = ".".join(str(part) for part in first["loc"])[:200] or "the top level"
        raise InputError(
            f"{path} is wrong at {place}: {first['msg']}; it must be as `gdp` {gdp.__version__} writes it, see docs/checkpoints.md"
        ) from error
    values = document.model_dump(by_alias=False)
    if values["config_sha256"] != config_sha256(raw):
        raise InputError(f"{path} is not what was written: its config_sha256 is of another content; fetch the checkpoint again")
    facts = WeightsFacts(**{field.name: values[field.name] for field in dataclasses.fields(WeightsFacts)})
    _check_sizes(values["policy"] | values["features"], path)
    try:
        policy, features = PolicyConfig(**values["policy"]), FeatureConfig(**values["features"])
    except InputError as error:
        raise InputError(f"{path} is wrong: {error}") from error
    return CheckpointConfig(
        architecture=values["architecture"], policy=policy, features=features, facts=facts, revision=hashlib.sha256(data).hexdigest()
    )


def config_sha256(document: Mapping[str, Any]) -> str:
    """Of all that `config.json` says but this: keys sorted, no spaces. A single changed byte in an architecture, a prior or the vocabulary is a changed policy."""
    said = {name: value for name, value in document.items() if name != "config_sha256"}
    return hashlib.sha256(json.dumps(said, sort_keys=True, separators=(",", ":"), allow_nan=False).encode()).hexdigest()


def _document() -> type[BaseModel]:
    """The schema of `config.json`, made from the very records that the policy takes."""
    strict = ConfigDict(extra="forbid", strict=True, populate_by_name=True)

    def of(record: type[PolicyConfig] | type[FeatureConfig]) -> type[BaseModel]:
        hints = get_type_hints(record)
        fields: dict[str, Any] = {field.name: (hints[field.name], field.default) for field in dataclasses.fields(record)}
        return create_model(record.__name__, __config__=strict, **fields)

    fields: dict[str, Any] = {
        "format": (Literal[2], Field(alias="schema")),
        "library": (Literal["gdp"], ...),
        "library_version": (Annotated[str, Field(max_length=100)], ...),
        "architecture": (Annotated[str, Field(max_length=100)], ...),
        "policy": (of(PolicyConfig), ...),
        "features": (of(FeatureConfig), ...),
        "num_parameters": (Annotated[int, Field(ge=1, le=MAX_WEIGHTS_BYTES)], ...),
        "weights_bytes": (Annotated[int, Field(ge=1, le=MAX_WEIGHTS_BYTES)], ...),
        "weights_sha256": (Annotated[str, Field(pattern="^[0-9a-f]{64}$")], ...),
        "config_sha256": (Annotated[str, Field(pattern="^[0-9a-f]{64}$")], ...),
    }
    return create_model("CheckpointDocument", __config__=strict, **fields)


def _check_header(data: bytes, path: Path) -> None:
    """What the library that reads the weights would pass over: a tensor that is there twice, a field that no tensor has."""
    length = int.from_bytes(data[:8], "little")
    try:
        header = parse_json(data[8 : 8 + length])
    except ValueError as error:
        raise InputError(f"{path} is not a safetensors file: its header is not JSON, {error}; fetch the checkpoint again") from error
    tensors = {name: value for name, value in header.items() if name != "__metadata__"} if isinstance(header, dict) else {"": None}
    for name, value in tensors.items():
        if not isinstance(value, dict) or value.keys() != {"dtype", "shape", "data_offsets"}:
            raise InputError(f"{path} is not a safetensors file: {name[:200]!r} in its header is no tensor; fetch the checkpoint again")


def check_readable(config: PolicyConfig, features: FeatureConfig) -> None:
    """Before a new policy takes memory and is taught. Raises `InputError` for one so large that its checkpoint would not be read."""
    _check_sizes(dataclasses.asdict(config) | dataclasses.asdict(features), "the policy")
    with torch.device("meta"):
        num_bytes = sum(value.nbytes for value in Policy(config, features, generator=torch.Generator()).state_dict().values())
    if num_bytes > MAX_WEIGHTS_BYTES:
        raise InputError(f"the policy would have weights of {num_bytes} bytes, and at most {MAX_WEIGHTS_BYTES} are read; make it smaller")


def _check_sizes(sizes: Mapping[str, Any], where: Path | str) -> None:
    """So that nothing large is built before the weights have shown that it is right."""
    for name, value in sizes.items():
        limit = MAX_LAYERS if "layers" in name or name == "passes" else MAX_SIZE
        if isinstance(value, int) and value > limit:
            raise InputError(f"{where} has {name} {value}; at most {limit} is read")


def _build(config: CheckpointConfig) -> Policy:
    """The architecture by its name, from a closed set."""
    match config.architecture:
        case "gdp":
            return Policy(config.policy, config.features, generator=torch.Generator())
        case unknown:
            raise InputError(f"the checkpoint's architecture is {unknown!r}; this gdp {gdp.__version__} knows only 'gdp': upgrade gdp")


def _check_shapes(state: Mapping[str, Tensor], config: CheckpointConfig, folder: Path) -> None:
    """Names and shapes against those of the architecture, built without memory."""
    with torch.device("meta"):
        wanted = {name: tuple(value.shape) for name, value in _build(config).state_dict().items()}
    missing, extra = sorted(wanted.keys() - state.keys()), sorted(state.keys() - wanted.keys())
    if missing or extra:
        what = f"misses the tensor {missing[0]!r}" if missing else f"holds the unknown tensor {extra[0][:200]!r}"
        raise InputError(
            f"{folder / WEIGHTS} {what} ({len(missing)} missing, {len(extra)} unknown): it does not belong to its {CONFIG}; fetch both again"
        )
    for name, shape in wanted.items():
        if tuple(state[name].shape) != shape:
            raise InputError(
                f"tensor {name!r} of {folder / WEIGHTS} has shape {tuple(state[name].shape)}, but its {CONFIG} asks for {shape}; fetch both again"
            )
    count = sum(value.numel() for value in state.values())
    if count != config.facts.num_parameters:
        raise InputError(
            f"{folder / WEIGHTS} has {count} parameters, but {CONFIG} promises {config.facts.num_parameters}; fetch both again"
        )


def _check_weights(state: Mapping[str, Tensor], where: str) -> None:
    for name, value in state.items():
        if value.dtype != torch.float32:
            raise InputError(f"tensor {name[:200]!r} of {where} is {value.dtype}; every weight must be torch.float32")
        if not torch.isfinite(value).all():
            raise InputError(
                f"tensor {name[:200]!r} of {where} holds a value that is not a finite number: training has failed; take another checkpoint"
            )


def _read(path: Path, *, max_bytes: int) -> bytes:
    return read_bounded(path, what="the file", advice=f"a checkpoint folder holds {CONFIG} and {WEIGHTS}", max_bytes=max_bytes)


def _json(document: Mapping[str, Any]) -> bytes:
    return (json.dumps(document, indent=1, allow_nan=False) + "\n").encode()


def _write_folder(folder: Path, contents: Mapping[str, bytes]) -> None:
    with writing(folder):
        folder.parent.mkdir(parents=True, exist_ok=True)
        temporary = Path(tempfile.mkdtemp(prefix=f".{folder.name}.", dir=folder.parent))
        try:
            for name, data in contents.items():
                with open(temporary / name, "wb") as file:
                    file.write(data)
                    file.flush()
                    os.fsync(file.fileno())
            umask = os.umask(0)
            os.umask(umask)
            temporary.chmod(0o777 & ~umask)
            old = folder.with_name(f"{folder.name}.old")
            if folder.exists():
                shutil.rmtree(old, ignore_errors=True)
                folder.rename(old)
            temporary.rename(folder)
            shutil.rmtree(old, ignore_errors=True)
        finally:
            shutil.rmtree(temporary, ignore_errors=True)
