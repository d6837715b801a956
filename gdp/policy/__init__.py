"""The GDP policy: encoder, decoder, superposition, heads, and the policy as a placer."""
