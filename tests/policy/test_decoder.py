import torch

from gdp.policy.decoder import Decoder

CONTEXT = torch.zeros(4)


def decoder(*, segment: int, layers: int = 1) -> Decoder:
    """One that is not as it starts, since an untrained layer changes nothing."""
    generator = torch.Generator().manual_seed(0)
    made = Decoder(hidden=8, layers=layers, heads=2, feed_forward=16, segment=segment, context=4, generator=generator)
    for layer in made.layers:
        for last in (layer.project, layer.narrow):
            torch.nn.init.normal_(last.dense.weight, std=0.5, generator=generator)
    return made


def tokens(groups: int, *, batch: int = 2) -> torch.Tensor:
    return torch.randn(batch, groups, 8, generator=torch.Generator().manual_seed(1))


def test_where_memory_covers_everything_segments_do_not_matter():
    # One layer, two segments: the second segment and its memory are the whole sequence. Tolerance: another order of summation.
    x = tokens(12)
    whole, parts = decoder(segment=12)(x, CONTEXT), decoder(segment=6)(x, CONTEXT)
    torch.testing.assert_close(parts[:, 6:], whole[:, 6:], rtol=1e-5, atol=1e-6)
    assert (parts[:, :6] - whole[:, :6]).abs().max() > 1e-3  # the first segment cannot see the second


def test_a_short_last_segment_is_not_padded_with_anything_visible():
    x = tokens(10)
    torch.testing.assert_close(decoder(segment=6)(x, CONTEXT)[:, 6:], decoder(segment=10)(x, CONTEXT)[:, 6:], rtol=1e-5, atol=1e-6)


def test_a_segment_sees_itself_and_the_one_before():
    x = tokens(12, batch=1)
    changed = x.clone()
    changed[:, 0] += torch.arange(8.0)
    moved = (decoder(segment=3)(x, CONTEXT) - decoder(segment=3)(changed, CONTEXT)).abs().amax(dim=-1)[0] > 0
    assert moved.tolist() == [True] * 6 + [False] * 6


def test_no_gradient_flows_into_memory():
    x = tokens(6, batch=1).requires_grad_()
    decoder(segment=3)(x, CONTEXT)[:, 3:].square().sum().backward()
    assert x.grad is not None
    assert x.grad[:, :3].abs().max() == 0 and x.grad[:, 3:].abs().max() > 0


def test_within_a_segment_order_does_not_matter():
    # There is no positional embedding: attention is equivariant.
    x = tokens(5)
    order = torch.tensor([3, 0, 4, 1, 2])
    torch.testing.assert_close(
        decoder(segment=5, layers=2)(x[:, order], CONTEXT), decoder(segment=5, layers=2)(x, CONTEXT)[:, order], rtol=1e-5, atol=1e-6
    )


def test_placements_of_a_batch_do_not_mix():
    x = tokens(7, batch=3)
    both = decoder(segment=3, layers=2)(x, CONTEXT)
    one_by_one = torch.cat([decoder(segment=3, layers=2)(row[None], CONTEXT) for row in x])
    torch.testing.assert_close(both, one_by_one, rtol=1e-5, atol=1e-6)


def test_the_first_segment_has_no_memory():
    x = tokens(12)
    torch.testing.assert_close(decoder(segment=6)(x, CONTEXT)[:, :6], decoder(segment=6)(x[:, :6], CONTEXT), rtol=1e-5, atol=1e-6)


def test_an_untrained_layer_changes_nothing():
    made = Decoder(hidden=8, layers=2, heads=2, feed_forward=16, segment=6, context=4, generator=torch.Generator().manual_seed(0))
    x = tokens(12)
    torch.testing.assert_close(made(x, CONTEXT), made.normalise(x))
