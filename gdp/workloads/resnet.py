"""ResNet-50, -101 and -152 (He et al., "Deep Residual Learning for Image Recognition", arXiv 1512.03385): the training step of Keras' implementation.

HDP (Mirhoseini et al., 2018) places ResNet-152. Momentum 0.9 as in section 3.4 of the paper, without weight decay; a batch of 32 is ours.
"""

from typing import Literal

from gdp.graph import Graph
from gdp.workloads.image_classifier import image_classifier_training


def resnet_training(num_layers: Literal[50, 101, 152] = 50, *, batch_size: int = 32) -> Graph:
    """On images of 224 x 224; Keras names blocks `conv3_block2`, which begins the names of their layers."""
    return image_classifier_training(
        lambda keras: {50: keras.applications.ResNet50, 101: keras.applications.ResNet101, 152: keras.applications.ResNet152}[num_layers](
            weights=None
        ),
        image_size=224,
        batch_size=batch_size,
        name=f"Keras ResNet-{num_layers}",
    )
