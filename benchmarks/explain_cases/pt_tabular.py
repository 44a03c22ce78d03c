"""Churn prediction on a small table, many epochs."""

import argparse

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset, random_split


def make_table(rows=3000, columns=40):
    x = torch.randn(rows, columns)
    weights = torch.randn(columns)
    return TensorDataset(x, (x @ weights > 0).float())


def train_epoch(model, loader, optimizer):
    model.train()
    total = 0.0
    for features, churned in loader:
        optimizer.zero_grad()
        loss = nn.functional.binary_cross_entropy_with_logits(model(features).squeeze(1), churned)
        loss.backward()
        optimizer.step()
        total += loss.item() * len(features)
    return total / len(loader.dataset)


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--epochs", type=int, default=60)
    ap.add_argument("--batch-size", type=int, default=64)
    ap.add_argument("--num-workers", type=int, default=2)
    args = ap.parse_args()
    torch.manual_seed(0)
    train, _ = random_split(make_table(), [2600, 400])
    loader = DataLoader(train, args.batch_size, num_workers=args.num_workers)
    model = nn.Sequential(nn.Linear(40, 128), nn.ReLU(), nn.Dropout(0.1), nn.Linear(128, 1))
    optimizer = torch.optim.Adam(model.parameters())
    for epoch in range(args.epochs):
        mean = train_epoch(model, loader, optimizer)
        if epoch % 10 == 0:
            print(f"epoch {epoch:3d} loss {mean:.4f}", flush=True)
    print(f"loss {mean:.4f}")


if __name__ == "__main__":
    main()
