"""VGG-16 (Simonyan and Zisserman, arXiv 1409.1556): the training step of Keras' implementation.

Momentum 0.9 as in section 3.1 of the paper, without weight decay and without dropout, which Keras leaves out; a batch of 32 is ours.
"""

from gdp.graph import Graph
from gdp.workloads.image_classifier import image_classifier_training


def vgg_training(batch_size: int = 32) -> Graph:
    """On images of 224 x 224."""
    return image_classifier_training(
        lambda keras: keras.applications.VGG16(weights=None), image_size=224, batch_size=batch_size, name="Keras VGG-16"
    )
