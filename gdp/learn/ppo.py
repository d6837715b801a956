"""Proximal policy optimisation on whole placements (Schulman et al., arXiv 1707.06347, equation 7; GDP, arXiv 1910.01578, section 3.3).

An episode has one step: all decisions of one placement are made at once and share one reward, so there is no value network and no
discount; the advantage is the reward minus a baseline (`gdp.learn.advantage`).

Deviation, stated: the ratio of a whole placement, `exp(sum of log-ratios)` over 10^4 decisions, leaves any clip range after the first
step. Here every decision has its own ratio, clipped on its own, and all decisions of a placement carry the common advantage
(GDP does not say which of the two it used). The decisions of every decoding pass count alike.
"""

import dataclasses

import torch
from jaxtyping import Float32


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class PPOLoss:
    """The loss to minimise and what to watch beside it; all but `loss` are detached."""

    loss: Float32[torch.Tensor, ""]
    """`policy_loss - entropy_weight * entropy`."""
    policy_loss: Float32[torch.Tensor, ""]
    """minus the clipped surrogate, averaged over decisions."""
    entropy: Float32[torch.Tensor, ""]
    """nats per decision."""
    approx_kl: Float32[torch.Tensor, ""]
    """mean of `ratio - 1 - log(ratio)` over decisions: an unbiased, never negative estimate of KL(old, new) in nats per decision."""
    clip_fraction: Float32[torch.Tensor, ""]
    """share of decisions whose ratio is outside the clip range."""


def ppo_loss(
    new_log_prob: Float32[torch.Tensor, "samples passes groups"],
    old_log_prob: Float32[torch.Tensor, "samples passes groups"],
    advantage: Float32[torch.Tensor, " samples"],
    entropy: Float32[torch.Tensor, "samples passes groups"],
    *,
    clip: float,
    entropy_weight: float,
) -> PPOLoss:
    """The clipped surrogate of every decision, averaged, minus the entropy bonus.

    Per decision: `min(ratio * A, clamp(ratio, 1 - clip, 1 + clip) * A)` with `ratio = exp(new_log_prob - old_log_prob)` and the advantage `A` of its placement.
    """
    log_ratio = new_log_prob - old_log_prob
    ratio = log_ratio.exp()
    common = advantage[:, None, None]
    surrogate = torch.minimum(ratio * common, ratio.clamp(1 - clip, 1 + clip) * common)
    policy_loss = -surrogate.mean()
    with torch.no_grad():
        approx_kl = (ratio - 1 - log_ratio).mean()
        clip_fraction = ((ratio - 1).abs() > clip).float().mean()
    return PPOLoss(
        loss=policy_loss - entropy_weight * entropy.mean(),
        policy_loss=policy_loss.detach(),
        entropy=entropy.detach().mean(),
        approx_kl=approx_kl,
        clip_fraction=clip_fraction,
    )
