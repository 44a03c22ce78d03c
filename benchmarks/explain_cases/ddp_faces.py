"""Plain data-parallel training, each rank in its own part of the data."""

import argparse
import os

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset


def parse():
    p = argparse.ArgumentParser()
    p.add_argument("--epochs", type=int, default=3)
    p.add_argument("--lr", type=float, default=0.05)
    return p.parse_args()


def main():
    args = parse()
    rank = int(os.environ["RANK"])
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    torch.manual_seed(21)
    faces = torch.randn(3072, 3, 24, 24)
    data = TensorDataset(faces, (faces[:, 0].mean((1, 2)) > 0).long())
    sampler = DistributedSampler(data, drop_last=True)
    loader = DataLoader(data, 64, sampler=sampler, drop_last=True)
    cnn = nn.Sequential(
        nn.Conv2d(3, 32, 3),
        nn.ReLU(),
        nn.Conv2d(32, 32, 3, stride=2),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(3),
        nn.Flatten(),
        nn.Linear(288, 2),
    )
    model = DistributedDataParallel(cnn)
    opt = torch.optim.SGD(model.parameters(), args.lr, momentum=0.9)
    for epoch in range(args.epochs):
        sampler.set_epoch(epoch)
        for x, y in loader:
            opt.zero_grad()
            loss = nn.functional.cross_entropy(model(x), y)
            loss.backward()
            opt.step()
        if rank == 0:
            torch.save(model.module.state_dict(), "faces.pt")
            print(f"epoch {epoch} loss {loss.item():.4f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
