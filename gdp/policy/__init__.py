"""The GDP policy: encoder, decoder, superposition, heads, and the policy as a placer."""

from gdp.policy.config import PolicyConfig as PolicyConfig
from gdp.policy.policy import Decisions as Decisions
from gdp.policy.policy import Policy as Policy
