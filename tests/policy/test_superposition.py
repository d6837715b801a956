import torch
from policy_examples import cluster, layered_graph, policy, tensors

from gdp.policy.superposition import SuperposedDense


def test_an_untrained_gate_changes_nothing():
    x = tensors(layered_graph(layers=5, width=3, seed=0), cluster(1e12, 1e12))
    gated = policy(shaken=False, superposition=True)
    plain = policy(shaken=False, superposition=False)
    unexpected = gated.load_state_dict(plain.state_dict(), strict=False)
    assert not unexpected.unexpected_keys
    device = gated.sample(x, num_samples=2, temperature=1.0, generator=torch.Generator().manual_seed(0)).device
    assert torch.equal(gated.evaluate(x, device)[0], plain.evaluate(x, device)[0])


def test_the_gate_by_hand():
    layer = SuperposedDense(2, 1, context=1, generator=torch.Generator())
    assert layer.gate is not None
    with torch.no_grad():
        layer.dense.weight.copy_(torch.tensor([[3.0, 5.0]]))
        layer.gate.weight.copy_(torch.tensor([[1.0], [-1.0]]))
    # gates 2 sigmoid(1) = 1.46211716 and 2 sigmoid(-1) = 0.53788284
    out = layer(torch.tensor([1.0, 10.0]), torch.tensor([1.0]))
    torch.testing.assert_close(out, torch.tensor([3 * 1.46211716 + 50 * 0.53788284]))


def test_every_dense_layer_of_the_decoder_is_gated():
    dense = {
        name for name, module in policy().decoder.named_modules() if isinstance(module, torch.nn.Linear) and not name.endswith(".gate")
    }
    gates = {name for name, module in policy().decoder.named_modules() if name.endswith(".gate")}
    assert len(dense) == 10 and {name.replace(".dense", ".gate") for name in dense} == gates
