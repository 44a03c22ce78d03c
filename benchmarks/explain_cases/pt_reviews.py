"""Sentiment of reviews of different lengths, bag-of-embeddings."""

import argparse

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Reviews(Dataset):
    def __init__(self, n):
        g = torch.Generator().manual_seed(8)
        sizes = torch.randint(20, 120, (n,), generator=g).tolist()
        self.items = [(torch.randint(1, 5000, (k,), generator=g), k % 2) for k in sizes]

    def __len__(self):
        return len(self.items)

    def __getitem__(self, i):
        return self.items[i]


def collate(samples):
    longest = max(len(tokens) for tokens, _ in samples)
    ids = torch.zeros(len(samples), longest, dtype=torch.long)
    for row, (tokens, _) in enumerate(samples):
        for column, token in enumerate(tokens):
            ids[row, column] = token
    return ids, torch.tensor([label for _, label in samples])


class Bag(nn.Module):
    def __init__(self):
        super().__init__()
        self.emb = nn.EmbeddingBag(5000, 64, padding_idx=0)
        self.fc = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 2))

    def forward(self, ids):
        return self.fc(self.emb(ids))


if __name__ == "__main__":
    ap = argparse.ArgumentParser()
    ap.add_argument("--epochs", type=int, default=4)
    ap.add_argument("--reviews", type=int, default=4000)
    ap.add_argument("--batch-size", type=int, default=50)
    flags = ap.parse_args()
    torch.manual_seed(0)
    loader = DataLoader(
        Reviews(flags.reviews), batch_size=flags.batch_size, shuffle=True, collate_fn=collate
    )
    model, loss_fn = Bag(), nn.CrossEntropyLoss()
    opt = torch.optim.Adam(model.parameters(), lr=2e-3)
    for epoch in range(flags.epochs):
        for ids, label in loader:
            opt.zero_grad()
            loss = loss_fn(model(ids), label)
            loss.backward()
            opt.step()
        print(f"Epoch {epoch + 1}/{flags.epochs} - loss: {loss.item():.4f}", flush=True)
