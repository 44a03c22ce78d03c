"""Glyph recogniser with random shifts and cut-outs."""

import argparse
import random

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

SIDE = 28


class Glyphs(Dataset):
    def __init__(self, n):
        g = torch.Generator().manual_seed(1)
        self.pixels = torch.rand(n, SIDE, SIDE, generator=g)
        self.labels = torch.randint(0, 12, (n,), generator=g)

    def __len__(self):
        return len(self.labels)

    def augment(self, image, i):
        draw = random.Random(i)
        dy, dx, hole = draw.randrange(3), draw.randrange(3), draw.randrange(SIDE - 6)
        source = image.tolist()
        out = [[0.0] * SIDE for _ in range(SIDE)]
        for y in range(SIDE):
            for x in range(SIDE):
                if not (hole <= y < hole + 6 and hole <= x < hole + 6):
                    out[y][x] = source[(y - dy) % SIDE][(x - dx) % SIDE]
        return torch.tensor(out)

    def __getitem__(self, i):
        return self.augment(self.pixels[i], i)[None], self.labels[i]


def train(loader, epochs):
    model = nn.Sequential(
        nn.Conv2d(1, 8, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(8 * 169, 12)
    )
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    for epoch in range(epochs):
        for images, labels in loader:
            loss = nn.functional.cross_entropy(model(images), labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        print(f"epoch {epoch}: {loss.item():.4f}", flush=True)


if __name__ == "__main__":
    cli = argparse.ArgumentParser()
    cli.add_argument("--epochs", type=int, default=5)
    cli.add_argument("--size", type=int, default=8192)
    ns = cli.parse_args()
    torch.manual_seed(0)
    train(DataLoader(Glyphs(ns.size), batch_size=64, shuffle=True), ns.epochs)
