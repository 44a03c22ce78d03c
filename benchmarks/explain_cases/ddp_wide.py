"""Wide autoencoder on two ranks."""

import argparse

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel


def autoencoder(width):
    sizes = [512, width, width, width, width, 512]
    layers = []
    for a, b in zip(sizes, sizes[1:]):
        layers += [nn.Linear(a, b), nn.SiLU()]
    return nn.Sequential(*layers[:-1])


def worker(args):
    torch.set_num_threads(1)
    rank = dist.get_rank()
    torch.manual_seed(2)
    net = DistributedDataParallel(autoencoder(args.width), bucket_cap_mb=2000)
    opt = torch.optim.SGD(net.parameters(), lr=0.05)
    gen = torch.Generator().manual_seed(rank)
    for step in range(args.steps):
        clean = torch.randn(args.batch, 512, generator=gen)
        noisy = clean + 0.1 * torch.randn(clean.shape, generator=gen)
        opt.zero_grad()
        loss = ((net(noisy) - clean) ** 2).mean()
        loss.backward()
        opt.step()
        if step % 10 == 9 and rank == 0:
            print(f"step {step + 1} loss {loss.item():.5f}", flush=True)
    if rank == 0:
        print(f"loss {loss.item():.5f}")


if __name__ == "__main__":
    ap = argparse.ArgumentParser()
    ap.add_argument("--steps", type=int, default=60)
    ap.add_argument("--width", type=int, default=1536)
    ap.add_argument("--batch", type=int, default=128)
    parsed = ap.parse_args()
    dist.init_process_group("gloo")
    try:
        worker(parsed)
    finally:
        dist.destroy_process_group()
