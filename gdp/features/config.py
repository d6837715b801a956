"""What a policy is shown of a graph and a cluster. It travels inside every checkpoint."""

import dataclasses

from gdp.errors import InputError
from gdp.features.vocabulary import OP_VOCABULARY

SCHEMA_VERSION = 3
"""Raised when a feature changes its meaning: a checkpoint of another version cannot be read."""

PHASES = ("forward", "backward", "update", "other")

GROUP_FEATURES = (
    "log_time_over_mean",
    "log_time_over_device_share",
    "log_flops",
    "log_accessed_bytes",
    "log_param_bytes",
    "log_output_bytes",
    "log_intensity",
    "log_transfer_in",
    "log_transfer_out",
    "transfer_over_time",
    "log_in_degree",
    "log_out_degree",
    "log_num_ops",
    "t_level",
    "b_level",
    "slack",
    "rank",
    "position",
    "param_pressure",
    "output_pressure",
    *PHASES,
    "shape_rank",
)
"""Per group; the output shape of its heaviest op follows (`FeatureConfig.shape_slots` numbers). docs/policy.md says what each one is."""

EDGE_FEATURES = ("log_bytes", "log_transfer", "transfer_over_time", "backward")
DEVICE_FEATURES = ("log_slowness", "log_memory", "log_pressure", "overhead_share", "log_send", "log_receive")
PAIR_FEATURES = ("log_slowness", "log_time_over_device_share", "param_share", "output_share")
CONTEXT_FEATURES = (
    "log_groups",
    "log_devices",
    "log_parallelism",
    "log_transfer",
    "param_pressure",
    "output_pressure",
    "time_spread",
    "program_order",
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class FeatureConfig:
    """How `featurize` turns a graph and a cluster into tensors. JSON holds it without loss."""

    schema_version: int = SCHEMA_VERSION
    """which meaning the features have; only the present one is understood."""
    op_vocabulary: tuple[str, ...] = OP_VOCABULARY
    """op types (without overloads) with an embedding of their own."""
    num_hash_buckets: int = 64
    """embeddings shared by the types outside the vocabulary."""
    shape_slots: int = 4
    """leading extents of the output shape that are shown."""

    def __post_init__(self) -> None:
        if self.schema_version != SCHEMA_VERSION:
            raise InputError(
                f"feature schema {self.schema_version} is not the one this version of gdp understands ({SCHEMA_VERSION}); use the gdp that wrote the checkpoint"
            )
        if self.num_hash_buckets < 1 or not 0 <= self.shape_slots <= 16:
            raise InputError(
                f"features need num_hash_buckets of at least 1 and shape_slots from 0 to 16, not {self.num_hash_buckets} and {self.shape_slots}"
            )
        if len(set(self.op_vocabulary)) != len(self.op_vocabulary):
            raise InputError("op_vocabulary of the features names a type twice; list each once")

    @property
    def num_types(self) -> int:
        """Embeddings: the vocabulary and the buckets."""
        return len(self.op_vocabulary) + self.num_hash_buckets

    @property
    def num_group_features(self) -> int:
        return len(GROUP_FEATURES) + self.shape_slots
