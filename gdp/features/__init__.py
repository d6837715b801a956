"""`Graph` x `Cluster` -> `GraphTensors`."""
