"""Photo classifier that reads JPEG data from memory."""

import argparse
import io

import numpy as np
import torch
from PIL import Image, ImageFilter
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Photos(Dataset):
    def __init__(self, n):
        rng = np.random.default_rng(0)
        self.labels = rng.integers(0, 5, n)
        self.files = []
        for label in self.labels[:64]:
            pixels = rng.integers(0, 60, (256, 256, 3)) + 35 * label
            out = io.BytesIO()
            Image.fromarray(pixels.astype(np.uint8)).save(out, "JPEG", quality=90)
            self.files.append(out.getvalue())

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, i):
        image = Image.open(io.BytesIO(self.files[i % 64])).convert("RGB")
        image = image.filter(ImageFilter.GaussianBlur(1)).resize((64, 64), Image.Resampling.LANCZOS)
        array = np.asarray(image, dtype=np.float32) / 255
        return torch.from_numpy(array).permute(2, 0, 1), int(self.labels[i % 64])


def network():
    return nn.Sequential(
        nn.Conv2d(3, 16, 5, stride=2),
        nn.ReLU(),
        nn.Conv2d(16, 32, 3, stride=2),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(4),
        nn.Flatten(),
        nn.Linear(512, 5),
    )


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--images", type=int, default=1024)
    options = parser.parse_args()
    torch.manual_seed(0)
    torch.set_num_threads(1)
    loader = DataLoader(Photos(options.images), batch_size=32, shuffle=True)
    model = network()
    opt = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    for epoch in range(options.epochs):
        for images, targets in loader:
            loss = nn.functional.cross_entropy(model(images), targets)
            opt.zero_grad()
            loss.backward()
            opt.step()
        print(f"epoch {epoch} loss {loss.item():.4f}", flush=True)
