"""`Graph` x `Cluster` -> `GraphTensors`."""

from gdp.features.config import FeatureConfig as FeatureConfig
from gdp.features.featurize import featurize as featurize
from gdp.features.graph_tensors import GraphTensors as GraphTensors
