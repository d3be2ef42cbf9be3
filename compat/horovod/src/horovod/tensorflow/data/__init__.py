"""`horovod.tensorflow.data`: tf.data's service, whose processes prepare data for those that train."""
