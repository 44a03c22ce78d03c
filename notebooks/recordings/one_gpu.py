"""Seven programs on one GPU, one after the other, to be watched by `labkit record`. PyTorch.

labkit record --to one_gpu.jsonl -- python one_gpu.py
"""

import time

import numpy as np
import torch
from torchvision.models import resnet50

from labkit.telemetry import span

SECONDS = 5.0
gpu = torch.device("cuda")


def repeat(name, work, images=None):
    """`work` again and again, in a span of this name; a wait for the GPU after each."""
    work()  # builds, chooses kernels
    torch.cuda.synchronize()
    time.sleep(1)
    times, end = 0, time.monotonic() + SECONDS
    with span(name) as opened:
        while time.monotonic() < end:
            work()
            torch.cuda.synchronize()
            times += 1
        opened.end(images=images and images * times)
    print(f"{name}: {times} times", flush=True)


class Training:
    """ResNet-50 on images of 224 × 224, in one precision."""

    def __init__(self, batch, precision="float32", tf32=False):
        torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = tf32
        self.model = resnet50().to(gpu, memory_format=torch.channels_last)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.01, momentum=0.9)
        self.type = torch.bfloat16 if precision == "bfloat16" else None
        self.images = torch.rand(batch, 3, 224, 224, device=gpu)
        self.labels = torch.randint(1000, (batch,), device=gpu)

    def step(self):
        """Forward, backward, update."""
        images = self.images.to(memory_format=torch.channels_last)
        with torch.autocast("cuda", self.type, enabled=self.type is not None):
            loss = torch.nn.functional.cross_entropy(self.model(images), self.labels)
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()

    def step_with_new_images(self):
        """The images of this step are made on the processor, by one thread, while the GPU waits."""
        pixels = random.integers(0, 256, (len(self.images), 3, 224, 224), dtype=np.uint8)
        flipped = pixels[..., ::-1].astype(np.float32) / 255
        self.images.copy_(torch.from_numpy((flipped - flipped.mean()) / flipped.std()))
        self.step()


random = np.random.default_rng(0)
torch.set_num_threads(1)
numbers = torch.ones(256, device=gpu)
chain = torch.cuda.CUDAGraph()
with torch.cuda.graph(chain):
    for _ in range(5000):
        numbers.mul_(1.0)
square = torch.randn(8192, 8192, device=gpu, dtype=torch.bfloat16)


def products():
    """Twenty products of 2 · 8192³ operations."""
    for _ in range(20):
        torch.mm(square, square)


time.sleep(1)
repeat("one small kernel after another", chain.replay)
repeat("matrix products", products)
repeat("waits for images", Training(256, "bfloat16").step_with_new_images, images=256)
repeat("batch 8", Training(8, "bfloat16").step, images=8)
repeat("float32", Training(256).step, images=256)
repeat("TF32", Training(256, tf32=True).step, images=256)
repeat("bfloat16", Training(256, "bfloat16").step, images=256)
