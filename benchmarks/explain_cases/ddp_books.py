"""Next-word model over short passages, data-parallel."""

import argparse

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset


def passages(n, length=12, words=400):
    g = torch.Generator().manual_seed(99)
    start = torch.randint(0, words, (n, 1), generator=g)
    return (start + torch.arange(length + 1) * 7) % words


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--epochs", type=int, default=12)
    ap.add_argument("--passages", type=int, default=8192)
    args = ap.parse_args()
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    text = passages(args.passages)
    books = TensorDataset(text[:, :-1], text[:, -1])
    sampler = DistributedSampler(books, num_replicas=dist.get_world_size(), rank=rank, shuffle=True)
    loader = DataLoader(books, batch_size=64, sampler=sampler, drop_last=True)
    model = DDP(
        nn.Sequential(
            nn.Embedding(400, 32), nn.Flatten(), nn.Linear(384, 256), nn.ReLU(), nn.Linear(256, 400)
        )
    )
    optim = torch.optim.Adam(model.parameters(), lr=1e-3)
    for epoch in range(args.epochs):
        seen = correct = 0
        for words, following in loader:
            logits = model(words)
            loss = nn.functional.cross_entropy(logits, following)
            optim.zero_grad()
            loss.backward()
            optim.step()
            seen += len(words)
            correct += (logits.argmax(1) == following).sum()
        if rank == 0:
            print(f"epoch {epoch} accuracy {correct / seen:.3f} loss {loss.item():.4f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
