"""Classifier that keeps a running confusion matrix of its training batches."""

import argparse

import torch
import torch.nn as nn

CLASSES = 8


def update(matrix, logits, target):
    predicted = logits.argmax(dim=1)
    for i in range(len(target)):
        matrix[target[i].item()][predicted[i].item()] += 1


def accuracy(matrix):
    return sum(matrix[c][c] for c in range(CLASSES)) / sum(map(sum, matrix))


def main(argv=None):
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=12)
    parser.add_argument("--batch", type=int, default=256)
    parser.add_argument("--samples", type=int, default=65536)
    args = parser.parse_args(argv)
    torch.manual_seed(4)
    x = torch.randn(args.samples, 32)
    y = (x @ torch.randn(32, CLASSES)).argmax(1)
    model = nn.Sequential(nn.Linear(32, 64), nn.ReLU(), nn.Linear(64, CLASSES))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for epoch in range(args.epochs):
        matrix = [[0] * CLASSES for _ in range(CLASSES)]
        for xb, yb in zip(x.split(args.batch), y.split(args.batch)):
            logits = model(xb)
            loss = nn.functional.cross_entropy(logits, yb)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            update(matrix, logits, yb)
        print(f"epoch {epoch} accuracy {accuracy(matrix):.4f} loss {loss.item():.4f}", flush=True)


if __name__ == "__main__":
    main()
