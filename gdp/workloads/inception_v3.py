"""Inception-V3 (Szegedy et al., "Rethinking the Inception Architecture for Computer Vision", arXiv 1512.00567): the training step of Keras' implementation.

The field's standard graph for device placement since ColRL (Mirhoseini et al., 2017). Optimiser as in section 8 of the paper: RMSProp with decay 0.9 and epsilon
1.0, learning rate 0.045; momentum 0.9 as in TensorFlow's own training script. Deviations: no auxiliary classifier and no label smoothing, which Keras leaves out.
"""

from gdp.capture.tensorflow_import import import_tensorflow
from gdp.capture.tensorflow_training import capture_training_step
from gdp.graph import Graph

_IMAGE = (299, 299, 3)


def inception_v3_training(batch_size: int = 32) -> Graph:
    """Forward pass, cross-entropy loss, gradients and RMSProp update of Inception-V3 on ImageNet, captured from TensorFlow.

    Starts Keras' automatic layer names afresh (`keras.utils.clear_session`), so that the same graph results however often it is built.
    """
    tf = import_tensorflow()
    import keras

    keras.utils.clear_session()
    return capture_training_step(
        keras.applications.InceptionV3(weights=None),
        keras.losses.sparse_categorical_crossentropy,
        keras.optimizers.RMSprop(0.045, rho=0.9, momentum=0.9, epsilon=1.0),
        inputs=tf.TensorSpec((batch_size, *_IMAGE), tf.float32, name="images"),
        labels=tf.TensorSpec((batch_size,), tf.int32, name="labels"),
        source=f"Keras InceptionV3, batch {batch_size}, training step with RMSprop, TensorFlow",
    )
