"""Image embedding with small micro-batches, to save memory."""

import argparse

import torch
from torch import nn


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=150)
    parser.add_argument("--micro", type=int, default=16)
    parser.add_argument("--accumulate", type=int, default=8)
    args = parser.parse_args()
    torch.manual_seed(0)
    net = nn.Sequential(
        nn.Conv2d(3, 16, 3, stride=2),
        nn.ReLU(),
        nn.Conv2d(16, 16, 3, stride=2),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(16 * 49, 10),
    )
    opt = torch.optim.SGD(net.parameters(), lr=0.02)
    for step in range(args.steps):
        opt.zero_grad()
        for _ in range(args.accumulate):
            x = torch.randn(args.micro, 3, 32, 32)
            y = (x.mean((1, 2, 3)) > 0).long()
            loss = nn.functional.cross_entropy(net(x), y)
            loss.backward()
        opt.step()
        if step % 25 == 0:
            print(f"step {step} loss {loss.item():.4f}", flush=True)
    print(f"loss {loss.item():.4f}")


if __name__ == "__main__":
    main()
