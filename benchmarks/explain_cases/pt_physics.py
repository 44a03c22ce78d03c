"""Learn a pendulum's energy from simulated states."""

import argparse

import numpy as np
import torch
from torch import nn


def simulate(n, seed):
    rng = np.random.default_rng(seed)
    theta = rng.uniform(-np.pi, np.pi, size=(n, 64))
    omega = rng.normal(size=(n, 64))
    energy = (0.5 * omega**2 - np.cos(theta)).sum(axis=1, keepdims=True) / 8
    return np.concatenate([np.sin(theta), np.cos(theta), omega], axis=1), energy


class EnergyNet(nn.Module):
    def __init__(self, hidden=768):
        super().__init__()
        self.layers = nn.Sequential(
            nn.Linear(192, hidden),
            nn.Tanh(),
            nn.Linear(hidden, hidden),
            nn.Tanh(),
            nn.Linear(hidden, 1),
        )

    def forward(self, state):
        return self.layers(state)


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--epochs", type=int, default=6)
    p.add_argument("--samples", type=int, default=16384)
    p.add_argument("--batch", type=int, default=256)
    a = p.parse_args()
    torch.manual_seed(0)
    states, energy = map(torch.from_numpy, simulate(a.samples, seed=1))
    net = EnergyNet().to(states.dtype)
    opt = torch.optim.Adam(net.parameters(), lr=1e-4)
    for epoch in range(a.epochs):
        losses = []
        for i in range(0, a.samples, a.batch):
            loss = nn.functional.mse_loss(net(states[i : i + a.batch]), energy[i : i + a.batch])
            opt.zero_grad()
            loss.backward()
            opt.step()
            losses.append(loss.detach())
        print(f"epoch {epoch} loss {torch.stack(losses).mean().item():.4f}", flush=True)


if __name__ == "__main__":
    main()
