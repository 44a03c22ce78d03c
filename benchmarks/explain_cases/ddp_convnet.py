"""Convolutional classifier on two processes of one host."""

import argparse
from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, Dataset
from torch.utils.data.distributed import DistributedSampler


@dataclass
class Config:
    batch_size: int = 32
    lr: float = 0.02
    cpu_threads: int = 16
    seed: int = 3


class Patterns(Dataset):
    def __init__(self, n, seed):
        g = torch.Generator().manual_seed(seed)
        self.y = torch.randint(0, 10, (n,), generator=g)
        self.x = torch.randn(n, 1, 20, 20, generator=g) + self.y[:, None, None, None] / 5

    def __len__(self):
        return len(self.y)

    def __getitem__(self, i):
        return self.x[i], self.y[i]


def build():
    return nn.Sequential(
        nn.Conv2d(1, 16, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(16, 32, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(32 * 25, 64),
        nn.ReLU(),
        nn.Linear(64, 10),
    )


def run(cfg, epochs, steps):
    torch.set_num_threads(cfg.cpu_threads)
    dist.init_process_group("gloo")
    torch.manual_seed(cfg.seed)
    data = Patterns(4096, cfg.seed)
    sampler = DistributedSampler(data, seed=cfg.seed)
    loader = DataLoader(data, cfg.batch_size, sampler=sampler)
    net = DDP(build())
    opt = torch.optim.SGD(net.parameters(), cfg.lr, momentum=0.9)
    for epoch in range(epochs):
        sampler.set_epoch(epoch)
        for n, (x, y) in enumerate(loader):
            if n == steps:
                break
            opt.zero_grad()
            loss = nn.functional.cross_entropy(net(x), y)
            loss.backward()
            opt.step()
        if dist.get_rank() == 0:
            print(f"[{epoch}] loss={loss.item():.4f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    ap = argparse.ArgumentParser()
    ap.add_argument("--epochs", type=int, default=6)
    ap.add_argument("--steps", type=int, default=None)
    ns = ap.parse_args()
    run(Config(), ns.epochs, ns.steps)
