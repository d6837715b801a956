"""NASNet-A (Zoph et al., "Learning Transferable Architectures for Scalable Image Recognition", arXiv 1707.07012): the training step of Keras' implementation.

Both networks of the paper's tables 2 and 3: 4 @ 1056 (mobile) and 6 @ 4032 (large). Deviations: momentum instead of RMSProp; no auxiliary head and no dropped paths, which
Keras leaves out. Batches of 32 and 8 are ours.
"""

from gdp.graph import Graph
from gdp.workloads.image_classifier import image_classifier_training


def nasnet_mobile_training(batch_size: int = 32) -> Graph:
    """On images of 224 x 224."""
    return image_classifier_training(
        lambda keras: keras.applications.NASNetMobile(weights=None), image_size=224, batch_size=batch_size, name="Keras NASNet-A mobile"
    )


def nasnet_large_training(batch_size: int = 8) -> Graph:
    """On images of 331 x 331."""
    return image_classifier_training(
        lambda keras: keras.applications.NASNetLarge(weights=None), image_size=331, batch_size=batch_size, name="Keras NASNet-A large"
    )
