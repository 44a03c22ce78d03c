"""Thumbnails are decoded while the network trains."""

import argparse
import io

import numpy as np
import torch
from PIL import Image
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Thumbs(Dataset):
    def __init__(self, n):
        rng = np.random.default_rng(4)
        self.n, self.blobs = n, []
        for _ in range(48):
            noise = Image.fromarray(rng.integers(0, 255, (24, 24, 3), dtype=np.uint8))
            out = io.BytesIO()
            noise.resize((160, 160)).save(out, format="PNG")
            self.blobs.append(out.getvalue())

    def __len__(self):
        return self.n

    def __getitem__(self, index):
        image = Image.open(io.BytesIO(self.blobs[index % 48])).resize((48, 48))
        return torch.from_numpy(np.array(image)).permute(2, 0, 1).float() / 255, index % 6


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--epochs", type=int, default=3)
    ap.add_argument("--images", type=int, default=2048)
    args = ap.parse_args()
    torch.manual_seed(0)
    torch.set_num_threads(1)
    loader = DataLoader(
        Thumbs(args.images),
        32,
        shuffle=True,
        num_workers=2,
        persistent_workers=True,
        prefetch_factor=4,
    )
    model = nn.Sequential(
        nn.Conv2d(3, 32, 3),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(32, 64, 3),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(2),
        nn.Flatten(),
        nn.Linear(256, 6),
    )
    opt = torch.optim.SGD(model.parameters(), 0.05, momentum=0.9)
    for epoch in range(args.epochs):
        for x, y in loader:
            loss = nn.functional.cross_entropy(model(x), y)
            opt.zero_grad()
            loss.backward()
            opt.step()
        print(f"epoch {epoch} loss {loss.item():.4f}", flush=True)


if __name__ == "__main__":
    main()
