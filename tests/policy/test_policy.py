import dataclasses

import numpy as np
import pytest
import torch
from policy_examples import FEATURES, cluster, graph, layered_graph, policy, tensors

from gdp.errors import InputError
from gdp.features.config import FeatureConfig
from gdp.features.graph_tensors import GraphTensors
from gdp.policy.config import PolicyConfig
from gdp.policy.policy import Decisions, Policy, gumbel_noise

DECODINGS = ("sequential", "independent")
EQUAL = (1e12, 1e12, 1e12)


def drawn(of: Policy, x: GraphTensors, *, num_samples: int = 5, seed: int = 0, temperature: float = 1.0) -> Decisions:
    return of.sample(x, num_samples=num_samples, temperature=temperature, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("decoding", DECODINGS)
@pytest.mark.parametrize("passes", [1, 3])
@pytest.mark.parametrize("temperature", [0.5, 2.0])
def test_log_prob_of_a_sample_equals_the_recomputed_one(decoding, passes, temperature):
    x = tensors(layered_graph(layers=7, width=4, seed=0), cluster(1e12, 5e11, 2e12))
    gdp = policy(decoding=decoding, passes=passes)
    decisions = drawn(gdp, x, temperature=temperature)
    log_prob, entropy = gdp.evaluate(x, decisions.device)
    assert decisions.device.shape == decisions.log_prob.shape == log_prob.shape == entropy.shape == (5, passes, 28)
    # float32 sums in another order
    torch.testing.assert_close(log_prob, decisions.log_prob, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("decoding", DECODINGS)
def test_frequencies_of_samples_match_probabilities(decoding):
    x = tensors(graph([(0, 1)], flops=[1e9, 2e9]), cluster(1e12, 1e12))
    gdp = policy(decoding=decoding, passes=2)
    decisions = drawn(gdp, x, num_samples=20_000)
    key = (decisions.device.flatten(1) * torch.tensor([8, 4, 2, 1])).sum(dim=1)
    every = torch.tensor([[[a, b], [c, d]] for a in (0, 1) for b in (0, 1) for c in (0, 1) for d in (0, 1)])
    probability = gdp.evaluate(x, every)[0].detach().sum(dim=(1, 2)).exp()
    assert probability.sum() == pytest.approx(1, abs=1e-5)
    # five standard deviations of a share of 20 000 draws are at most 0.018
    assert (torch.bincount(key, minlength=16) / 20_000 - probability).abs().max() < 0.018


@pytest.mark.parametrize("decoding", DECODINGS)
def test_a_group_that_shares_its_noise_is_drawn_as_often_as_alone(decoding):
    """The first group decided sees no other: its shares are its probabilities, whatever it shares noise with."""
    x = tensors(graph([(0, 1), (0, 2)], flops=[1e9, 2e9, 3e9]), cluster(*EQUAL))
    gdp = policy(decoding=decoding)
    noise = gumbel_noise((20_000, gdp.config.passes, 2, 3), generator=torch.Generator().manual_seed(0))
    decided = gdp.decide(x, noise[:, :, torch.tensor([0, 1, 0])])
    every = torch.tensor([[[device, 0, 0]] for device in range(3)])
    probability = gdp.evaluate(x, every)[0].detach()[:, 0, 0].exp()
    assert (torch.bincount(decided.device[:, 0, 0], minlength=3) / 20_000 - probability).abs().max() < 0.018
    torch.testing.assert_close(gdp.evaluate(x, decided.device[:50])[0], decided.log_prob[:50], rtol=1e-4, atol=1e-4)


def test_trust_leads_from_the_priors_to_what_was_learned():
    x = tensors(layered_graph(layers=6, width=3, seed=0), cluster(1e12, 5e11, 2e12))
    untrained, trained = policy(passes=1, shaken=False), policy(passes=1)
    none, all_of_it = (of.decide(x, torch.zeros(1, 1, 18, 3), trust=trust) for of, trust in ((trained, 0.0), (trained, 1.0)))
    assert torch.equal(all_of_it.device, trained.decide(x, torch.zeros(1, 1, 18, 3)).device)
    with torch.no_grad():
        untrained.head.score.dense.weight.zero_()
    assert torch.equal(none.device, untrained.greedy(x)[None, None]), "the priors alone"
    assert not torch.allclose(none.log_prob, all_of_it.log_prob, atol=1e-2)
    torch.testing.assert_close(none.log_prob, untrained.evaluate(x, none.device)[0].detach(), rtol=1e-4, atol=1e-4)


def test_without_trust_independent_decisions_are_uniform():
    x = tensors(layered_graph(layers=3, width=2, seed=0), cluster(*EQUAL))
    decided = policy(decoding="independent", passes=1).decide(x, torch.zeros(1, 1, 6, 3), trust=0.0)
    torch.testing.assert_close(decided.log_prob, torch.full((1, 1, 6), -float(np.log(3))))


def test_groups_that_share_their_noise_go_together_when_noise_decides():
    x = tensors(layered_graph(layers=3, width=2, seed=0), cluster(*EQUAL))
    gdp, block = policy(passes=1), torch.tensor([0, 0, 0, 1, 1, 1])
    hot = 1e6 * gumbel_noise((40, 1, 2, 3), generator=torch.Generator().manual_seed(1))
    together = gdp.decide(x, hot[:, :, block]).device[:, 0]
    assert (together[:, :3] == together[:, :1]).all() and (together[:, 3:] == together[:, 3:4]).all()
    assert (together[:, 0] != together[:, 3]).any()
    apart = drawn(gdp, x, num_samples=40, temperature=1e6).device[:, 0]
    assert (apart[:, :3] != apart[:, :1]).any()


@pytest.mark.parametrize("decoding", DECODINGS)
def test_entropy_is_that_of_the_probabilities(decoding):
    x = tensors(graph([(0, 1)], flops=[1e9, 2e9]), cluster(*EQUAL))
    gdp = policy(decoding=decoding, passes=1)
    first = torch.tensor([[[device, 0]] for device in range(3)])
    log_prob, entropy = gdp.evaluate(x, first)
    chances = log_prob[:, 0, 0]
    torch.testing.assert_close(entropy[0, 0, 0], -(chances.exp() * chances).sum())


@pytest.mark.parametrize("decoding", DECODINGS)
def test_a_ruled_out_device_is_never_drawn(decoding):
    small = dataclasses.replace(cluster(*EQUAL).devices[1], memory_bytes=100, kind="small")
    unequal = dataclasses.replace(cluster(*EQUAL), devices=(cluster(*EQUAL).devices[0], small, cluster(*EQUAL).devices[2]))
    x = tensors(graph([(0, 1), (1, 2)], flops=[1e9] * 3, tensor_bytes=4, param_bytes=[0, 1000, 0]), unequal)
    gdp = policy(decoding=decoding, passes=2)
    decisions = drawn(gdp, x, num_samples=500)
    assert not (decisions.device[:, :, 1] == 1).any() and (decisions.device[:, :, 0] == 1).any()
    log_prob, entropy = gdp.evaluate(x, decisions.device)
    torch.testing.assert_close(log_prob, decisions.log_prob, rtol=1e-4, atol=1e-4)
    assert torch.isfinite(log_prob).all() and torch.isfinite(entropy).all()
    entropy.sum().backward()
    assert all(torch.isfinite(parameter.grad).all() for parameter in gdp.parameters() if parameter.grad is not None)


def test_parameters_placed_one_after_another_never_exceed_a_device_that_could_be_spared():
    x = tensors(graph([], flops=[1e9] * 6, param_bytes=[400] * 6), cluster(*EQUAL, memory_bytes=1000))
    device = drawn(policy(passes=1), x, num_samples=300).device[:, -1]
    assert all(np.bincount(row, minlength=3).max() == 2 for row in device.numpy())


@pytest.mark.parametrize("decoding", DECODINGS)
def test_greedy_is_the_limit_of_cold_sampling(decoding):
    x = tensors(layered_graph(layers=7, width=4, seed=0), cluster(1e12, 5e11, 2e12))
    gdp = policy(decoding=decoding, passes=2)
    assert torch.equal(gdp.greedy(x), drawn(gdp, x, num_samples=1, temperature=1e-9).device[0, -1])


def test_the_same_generator_gives_the_same_samples():
    x = tensors(layered_graph(layers=7, width=4, seed=0), cluster(*EQUAL))
    one, other = (drawn(policy(), x, seed=3) for _ in range(2))
    assert torch.equal(one.device, other.device) and torch.equal(one.log_prob, other.log_prob)
    assert not torch.equal(one.device, drawn(policy(), x, seed=4).device)


@pytest.mark.parametrize("decoding", DECODINGS)
def test_what_was_placed_before_does_not_matter(decoding):
    x, other = (tensors(layered_graph(layers=5, width=3, seed=seed), cluster(*EQUAL)) for seed in (0, 1))
    gdp = policy(decoding=decoding)
    before = drawn(gdp, x)
    drawn(gdp, other)
    assert torch.equal(before.device, drawn(gdp, x).device)


def test_renumbering_groups_renumbers_the_answer():
    # In one segment and with independent decisions nothing knows a group's number but its `position` feature, which is moved along.
    x = tensors(layered_graph(layers=3, width=2, seed=0), cluster(*EQUAL))
    order = torch.tensor([3, 0, 5, 1, 4, 2])  # old number of each new group
    new = torch.argsort(order)
    by_group = {name: getattr(x, name)[order] for name in ("group", "pair", "allowed", "time", "param_share", "output_share")}
    renumbered = dataclasses.replace(
        x, **by_group, type_group=new[x.type_group], edge_producer=new[x.edge_producer], edge_consumer=new[x.edge_consumer]
    )
    gdp = policy(decoding="independent", passes=2)
    device = drawn(gdp, x).device
    # float32 sums in another order
    torch.testing.assert_close(
        gdp.evaluate(renumbered, device[:, :, order])[0], gdp.evaluate(x, device)[0][:, :, order], rtol=1e-4, atol=1e-5
    )


@pytest.mark.parametrize("decoding", DECODINGS)
def test_permuting_devices_with_their_slots_permutes_probabilities(decoding):
    x = tensors(layered_graph(layers=7, width=4, seed=0), cluster(1e12, 1e12, 5e11))
    order = torch.tensor([2, 0, 1])  # old number of each new device
    new = torch.argsort(order)
    by_device = {name: getattr(x, name)[order] for name in ("device", "slot")}
    by_pair = {name: getattr(x, name)[:, order] for name in ("pair", "allowed", "time", "param_share", "output_share")}
    both = np.ix_(order, order)
    links = {name: np.ascontiguousarray(getattr(x.ops, name)[both]) for name in ("latency", "time_per_byte", "channel")}
    permuted = dataclasses.replace(x, **by_device, **by_pair, ops=x.ops._replace(time=np.ascontiguousarray(x.ops.time[:, order]), **links))
    gdp = policy(decoding=decoding, passes=2)
    device = drawn(gdp, x).device
    torch.testing.assert_close(gdp.evaluate(permuted, new[device])[0], gdp.evaluate(x, device)[0], rtol=1e-4, atol=1e-5)


def test_slots_alone_tell_equal_devices_apart():
    x = tensors(layered_graph(layers=3, width=2, seed=0), cluster(1e12, 1e12))
    device = torch.tensor([0, 1]).reshape(2, 1, 1).expand(2, 1, 6)
    one, two = policy(decoding="independent", passes=1).evaluate(x, device)[0].exp()
    assert (one - two).abs().min() > 1e-3
    no_slots = dataclasses.replace(x, slot=torch.zeros(2, dtype=torch.int64))
    one, two = policy(decoding="independent", passes=1).evaluate(no_slots, device)[0].exp()
    torch.testing.assert_close(one, two)


@pytest.mark.parametrize("count", [1, 2, 16])
@pytest.mark.parametrize("decoding", DECODINGS)
def test_one_policy_serves_clusters_of_any_size(decoding, count):
    x = tensors(layered_graph(layers=5, width=3, seed=0), cluster(*[1e12] * count))
    device = drawn(policy(decoding=decoding), x, num_samples=50).device
    assert 0 <= device.min() and device.max() == count - 1


def test_too_many_devices_are_refused():
    x = tensors(layered_graph(layers=2, width=2, seed=0), cluster(*[1e12] * 17))
    with pytest.raises(InputError, match="at most 16 devices"):
        policy().greedy(x)


@pytest.mark.parametrize(("temperature", "num_samples"), [(0.0, 1), (float("nan"), 1), (1.0, 0)])
def test_impossible_sampling_is_refused(temperature, num_samples):
    x = tensors(layered_graph(layers=2, width=2, seed=0), cluster(*EQUAL))
    with pytest.raises(InputError):
        drawn(policy(), x, num_samples=num_samples, temperature=temperature)


def test_a_group_graph_with_a_cycle_is_placed():
    x = tensors(layered_graph(layers=4, width=2, seed=0), cluster(*EQUAL))
    producer, consumer = torch.cat([x.edge_producer, torch.tensor([7])]), torch.cat([x.edge_consumer, torch.tensor([0])])
    order = np.lexsort((producer.numpy(), consumer.numpy()))
    more = {name: torch.cat([getattr(x, name), getattr(x, name)[:1]])[order] for name in ("edge", "edge_bytes", "edge_messages")}
    cyclic = dataclasses.replace(x, edge_producer=producer[order], edge_consumer=consumer[order], **more)
    gdp = policy(passes=2)
    decisions = drawn(gdp, cyclic)
    torch.testing.assert_close(gdp.evaluate(cyclic, decisions.device)[0], decisions.log_prob, rtol=1e-4, atol=1e-4)


def test_default_policy_is_small():
    config, features = PolicyConfig(), FeatureConfig()
    gdp = Policy(config, features, generator=torch.Generator())
    h, ff, c, w, t = config.hidden, config.feed_forward, config.context, config.head_width, config.type_embedding
    gate = lambda inputs: c * inputs + inputs  # noqa: E731
    encoder = features.num_types * t + (features.num_group_features + t + 1) * h + 2 * h
    encoder += config.sage_layers * (2 * (h * h + h + 4 * h) + 3 * h * h + h + 2 * h)
    attention = 4 * (h * h + h) + (h * ff + ff) + (ff * h + h) + 4 * h + 4 * gate(h) + gate(ff)
    head = (h * w + w + gate(h)) + (w * w + w) + 4 * w + 6 * w + (14 * w + gate(14)) + (w + gate(w)) + 14
    conditioner = (2 * h + 8) * c + c
    devices = 6 * w + w + config.max_devices * w
    revise = (w + 6) * h + h
    expected = encoder + config.attention_layers * attention + 2 * h + head + conditioner + devices + revise
    assert sum(parameter.numel() for parameter in gdp.parameters()) == expected < 250_000


def test_fine_tuning_moves_gates_and_heads_alone():
    gdp = policy()
    moved = {id(parameter) for parameter in gdp.conditioning_and_heads()}
    names = {name for name, parameter in gdp.named_parameters() if id(parameter) in moved}
    assert "decoder.layers.0.query.gate.weight" in names and "head.score.dense.weight" in names and "conditioner.summarise.weight" in names
    assert not any(name.startswith("encoder.") or (name.startswith("decoder.") and ".gate." not in name) for name in names)


def test_initialisation_comes_from_the_generator_alone():
    state = torch.get_rng_state()
    one, same, other = (Policy(PolicyConfig(), FEATURES, generator=torch.Generator().manual_seed(seed)) for seed in (0, 0, 1))
    assert torch.equal(torch.get_rng_state(), state)
    assert all(torch.equal(a, b) for a, b in zip(one.parameters(), same.parameters(), strict=True))
    assert not torch.equal(one.encoder.embed.weight, other.encoder.embed.weight)


@pytest.mark.parametrize("wrong", [{"hidden": 0}, {"heads": 3}, {"sage_layers": -1}, {"finish_prior": -1.0}, {"passes": 0}])
def test_a_wrong_config_cannot_exist(wrong):
    with pytest.raises(InputError):
        PolicyConfig(**wrong)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize("decoding", DECODINGS)
def test_a_policy_on_a_gpu_says_what_it_says_on_the_processor(decoding):
    x = tensors(layered_graph(layers=7, width=4, seed=0), cluster(1e12, 5e11, 2e12))
    here, there = policy(decoding=decoding, passes=2), policy(decoding=decoding, passes=2).to("cuda")
    device = drawn(here, x).device
    ours, theirs = here.evaluate(x, device), there.evaluate(x, device)
    torch.testing.assert_close(theirs, ours, rtol=1e-3, atol=1e-3)
    theirs[0].sum().backward()
    assert all(parameter.grad.is_cuda for parameter in there.parameters() if parameter.grad is not None)
    assert drawn(there, x).device.shape == device.shape and not there.greedy(x).is_cuda
