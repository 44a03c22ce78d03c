"""Transformer encoder that learns to sort digits."""

import argparse
import os

os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
os.environ["OMP_NUM_THREADS"] = "1"

import torch
from torch import nn


class Sorter(nn.Module):
    def __init__(self, d_model, layers):
        super().__init__()
        self.embed = nn.Embedding(32, d_model)
        self.pos = nn.Parameter(torch.zeros(1, 64, d_model))
        layer = nn.TransformerEncoderLayer(d_model, 8, 4 * d_model, dropout=0.0, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, layers, enable_nested_tensor=False)
        self.head = nn.Linear(d_model, 32)

    def forward(self, ids):
        return self.head(self.encoder(self.embed(ids) + self.pos[:, : ids.shape[1]]))


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--steps", type=int, default=30)
    ap.add_argument("--batch", type=int, default=32)
    ap.add_argument("--d-model", type=int, default=256)
    args = ap.parse_args()
    torch.manual_seed(0)
    model = Sorter(args.d_model, layers=3)
    opt = torch.optim.AdamW(model.parameters(), lr=5e-4)
    for it in range(args.steps):
        ids = torch.randint(0, 32, (args.batch, 64))
        target = ids.sort(1).values
        logits = model(ids)
        loss = nn.functional.cross_entropy(logits.flatten(0, 1), target.flatten())
        opt.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        opt.step()
        if it % 10 == 0:
            print(f"iter {it} loss {loss.item():.4f}", flush=True)
    print(f"loss {loss.item():.4f}")


if __name__ == "__main__":
    main()
