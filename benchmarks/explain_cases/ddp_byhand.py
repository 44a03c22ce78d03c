"""Data parallelism by hand: average the gradients with torch.distributed, then step."""

import argparse

import torch
import torch.distributed as dist
from torch import nn


def mlp(depth, width):
    layers = [nn.Linear(64, width)]
    for _ in range(depth):
        layers += [nn.LayerNorm(width), nn.ReLU(), nn.Linear(width, width)]
    return nn.Sequential(*layers, nn.Linear(width, 10))


def average_gradients(model):
    world = dist.get_world_size()
    grads = [p.grad for p in model.parameters() if p.grad is not None]
    for g in grads:
        dist.all_reduce(g)
        g /= world


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--depth", type=int, default=60)
    parser.add_argument("--width", type=int, default=48)
    opt = parser.parse_args()
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    model = mlp(opt.depth, opt.width)
    for p in model.parameters():
        dist.broadcast(p.data, src=0)
    torch.manual_seed(rank)
    sgd = torch.optim.SGD(model.parameters(), lr=0.01)
    for step in range(opt.steps):
        x = torch.randn(64, 64)
        y = x[:, :10].argmax(1)
        loss = nn.functional.cross_entropy(model(x), y)
        sgd.zero_grad()
        loss.backward()
        average_gradients(model)
        sgd.step()
        if rank == 0 and step % 50 == 0:
            print(f"iter {step} loss {loss.item():.4f}", flush=True)
    if rank == 0:
        print(f"end loss {loss.item():.4f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
