"""gdp: a hub of pretrained device-placement models.

`program --capture--> Graph --features--> GraphTensors --policy--> Placement --runtime--> Measurement --reward--> float --learn--> Policy --hub--> checkpoint`
"""

from gdp.cluster import Cluster as Cluster
from gdp.cluster import Device as Device
from gdp.errors import InputError as InputError
from gdp.graph import Graph as Graph
from gdp.graph import Phase as Phase
from gdp.measurement import Measurement as Measurement
from gdp.measurement import MeasurementBatch as MeasurementBatch
from gdp.measurement import Objective as Objective
from gdp.measurement import Runtime as Runtime
from gdp.measurement import Status as Status
from gdp.measurement import Timeline as Timeline
from gdp.placement import Origin as Origin
from gdp.placement import Placement as Placement
from gdp.placement import Placer as Placer
from gdp.reward import RewardFn as RewardFn

__version__ = "0.1.0"
