"""`Graph` x `Cluster` x `Placement` -> `Measurement`: the simulator and the real devices."""
