"""Exact solvers of Tarnawski et al. (NeurIPS 2020), with their cost model as it is."""
