"""A plain Horovod script: a residual network on images that are made up, in Gluon.

horovodrun -np 2 python examples/horovod/mxnet_imagenet_shaped.py
"""

from __future__ import annotations

import argparse
import time

import mxnet as mx
from mxnet.gluon.model_zoo import vision

import horovod.mxnet as hvd


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--model", default="resnet18_v1")
    parser.add_argument("--batch", type=int, default=2)
    parser.add_argument("--size", type=int, default=32)
    parser.add_argument("--classes", type=int, default=10)
    parser.add_argument("--steps", type=int, default=3)
    options = parser.parse_args()

    hvd.init()
    mx.random.seed(hvd.rank())
    net = vision.get_model(options.model, classes=options.classes)
    net.initialize(mx.init.Xavier())
    net.hybridize(static_alloc=True)
    hvd.broadcast_parameters(net.collect_params())
    schedule = mx.lr_scheduler.PolyScheduler(max_update=1000, base_lr=0.1 * hvd.size(), warmup_steps=50)
    trainer = hvd.DistributedTrainer(net.collect_params(), "nag", {"momentum": 0.9, "lr_scheduler": schedule})
    loss_of = mx.gluon.loss.SoftmaxCrossEntropyLoss()

    began = time.monotonic()
    for _ in range(options.steps):
        images = mx.nd.random.uniform(shape=(options.batch, 3, options.size, options.size))
        labels = mx.nd.random.randint(0, options.classes, (options.batch,)).astype("float32")
        with mx.autograd.record():
            loss = loss_of(net(images), labels)
        loss.backward()
        trainer.step(options.batch)
    mx.nd.waitall()
    if hvd.rank() == 0:
        n = options.steps * options.batch * hvd.size()
        print(f"{n / (time.monotonic() - began):.1f} images a second on {hvd.size()} ranks")


main()
