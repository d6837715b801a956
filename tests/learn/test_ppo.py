"""Numbers worked out by hand: ratio 1.5 or 0.5 with a clip of 0.2, advantage +2 or -2."""

import math

import pytest
import torch

from gdp.learn.ppo import ppo_loss

ZERO = torch.zeros(1, 1, 1)


@pytest.mark.parametrize(
    ("ratio", "advantage", "surrogate", "moves"),
    [
        (1.5, 2.0, 1.2 * 2.0, False),  # good and already likelier than the clip allows: no more push
        (0.5, 2.0, 0.5 * 2.0, True),  # good but less likely: full push
        (1.5, -2.0, 1.5 * -2.0, True),  # bad but likelier: full push
        (0.5, -2.0, 0.8 * -2.0, False),  # bad and already less likely than the clip allows
    ],
)
def test_both_sides_of_the_clip_for_both_signs(ratio: float, advantage: float, surrogate: float, moves: bool) -> None:
    new = torch.full((1, 1, 1), math.log(ratio), requires_grad=True)
    result = ppo_loss(new, ZERO, torch.tensor([advantage]), ZERO, clip=0.2, entropy_weight=0.0)
    result.loss.backward()
    assert float(result.policy_loss) == pytest.approx(-surrogate, rel=1e-6)
    assert float(result.clip_fraction) == 1.0
    assert new.grad is not None
    assert float(new.grad) == pytest.approx(-ratio * advantage if moves else 0.0, rel=1e-6)


def test_decisions_are_clipped_one_by_one_and_share_the_advantage() -> None:
    new = torch.log(torch.tensor([[[1.5, 1.1, 1.0]], [[0.5, 0.9, 1.0]]]))
    result = ppo_loss(new, torch.zeros(2, 1, 3), torch.tensor([1.0, -1.0]), torch.full((2, 1, 3), 0.7), clip=0.2, entropy_weight=0.1)
    # sample 0: 1.2 (clipped), 1.1, 1.0; sample 1: -0.8 (clipped), -0.9, -1.0
    assert float(result.policy_loss) == pytest.approx(-(1.2 + 1.1 + 1.0 - 0.8 - 0.9 - 1.0) / 6, rel=1e-5)
    assert float(result.loss) == pytest.approx(float(result.policy_loss) - 0.1 * 0.7, rel=1e-5)
    assert float(result.clip_fraction) == pytest.approx(2 / 6)
    kl = sum(r - 1 - math.log(r) for r in (1.5, 1.1, 1.0, 0.5, 0.9, 1.0)) / 6
    assert float(result.approx_kl) == pytest.approx(kl, rel=1e-4)
