"""A two-tower retrieval model in the manner of YouTube's (Yi et al., RecSys 2019; the features of Covington et al., RecSys 2016).

The query tower reads a user's last 50 watches and 50 searches, each averaged, with the video now playing and eight categories of the user and the context; the candidate
tower the video with its channel and six categories. Hidden layers of 1 024, 512 and 128, and the softmax over the batch as the loss, are those of Yi et al. Watches, the video
now playing and the candidate share one table. A million videos and as many search tokens, of 256 numbers each, are the sizes of Covington et al.; those of the other tables, and
the batch of 8 192, are ours.

Deviations: no correction of the sampling bias, which is an estimate kept outside the graph; AdamW with dense gradients instead of Adagrad.
"""

import torch
from torch import nn
from torch.nn import functional as F

from gdp.workloads.torch_step import Example

VIDEOS, SEARCHES, CHANNELS, WIDTH = 1_000_000, 1_000_000, 500_000, 256
CATEGORIES, CATEGORY_WIDTH = 10_000, 32
USER_CATEGORIES, VIDEO_CATEGORIES = 8, 6
LAYERS = (1024, 512, 128)
_HISTORY = 50


class TwoTowerRetrieval(nn.Module):
    """Unit vectors of queries and candidates, `[batch, 128]` each."""

    def __init__(self) -> None:
        super().__init__()
        self.videos, self.searches = (nn.EmbeddingBag(rows, WIDTH, mode="mean") for rows in (VIDEOS, SEARCHES))
        self.channels = nn.Embedding(CHANNELS, WIDTH)
        self.user_categories, self.video_categories = (
            nn.ModuleList(nn.Embedding(CATEGORIES, CATEGORY_WIDTH) for _ in range(count)) for count in (USER_CATEGORIES, VIDEO_CATEGORIES)
        )
        self.query = _perceptron(3 * WIDTH + USER_CATEGORIES * CATEGORY_WIDTH)
        self.candidate = _perceptron(2 * WIDTH + VIDEO_CATEGORIES * CATEGORY_WIDTH)

    def forward(
        self,
        watches: torch.Tensor,
        searches: torch.Tensor,
        playing: torch.Tensor,
        user: torch.Tensor,
        video: torch.Tensor,
        channel: torch.Tensor,
        about: torch.Tensor,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Numbers of table rows: `[batch, 50]` twice, `[batch, 1]`, `[batch, 8]`, `[batch, 1]`, `[batch]`, `[batch, 6]`."""
        of_user = [table(rows) for table, rows in zip(self.user_categories, user.unbind(1), strict=True)]
        of_video = [table(rows) for table, rows in zip(self.video_categories, about.unbind(1), strict=True)]
        query = self.query(torch.cat([self.videos(watches), self.searches(searches), self.videos(playing), *of_user], dim=1))
        candidate = self.candidate(torch.cat([self.videos(video), self.channels(channel), *of_video], dim=1))
        return F.normalize(query), F.normalize(candidate)


def two_tower_retrieval(*, batch_size: int) -> Example:
    """The model on a batch of watched videos, each the negative example of the others' queries."""

    def rows(*shape: int) -> torch.Tensor:
        return torch.empty(batch_size, *shape, dtype=torch.int64)

    inputs = (rows(_HISTORY), rows(_HISTORY), rows(1), rows(USER_CATEGORIES), rows(1), rows(), rows(VIDEO_CATEGORIES))
    return Example(module=TwoTowerRetrieval(), inputs=inputs, targets=(rows(),), loss=_batch_softmax)


def _batch_softmax(results: tuple[torch.Tensor, torch.Tensor], own: torch.Tensor) -> torch.Tensor:
    query, candidate = results
    return F.cross_entropy(query @ candidate.t() / 0.05, own)


def _perceptron(width: int) -> nn.Sequential:
    layers: list[nn.Module] = []
    for number, out in enumerate(LAYERS):
        layers += [nn.Linear(width, out), *([nn.ReLU()] if number < len(LAYERS) - 1 else [])]
        width = out
    return nn.Sequential(*layers)
