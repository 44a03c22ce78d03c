"""Sequence classifier on sentences of many lengths, two ranks."""

import argparse

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

VOCAB = 1000


class Encoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.emb = nn.Embedding(VOCAB, 64, padding_idx=0)
        self.rnn = nn.GRU(64, 96, batch_first=True)
        self.head = nn.Linear(96, 2)

    def forward(self, ids):
        states, _ = self.rnn(self.emb(ids))
        return self.head(states.mean(1))


def make_corpus(n):
    g = torch.Generator().manual_seed(11)
    lengths = torch.where(
        torch.rand(n, generator=g) < 0.5,
        torch.randint(8, 16, (n,), generator=g),
        torch.randint(150, 200, (n,), generator=g),
    )
    return [torch.randint(1, VOCAB, (int(k),), generator=g) for k in lengths]


def make_batches(corpus, size):
    ordered = sorted(range(len(corpus)), key=lambda i: len(corpus[i]))
    return [ordered[i : i + size] for i in range(0, len(ordered), size)]


def shard(groups, epoch, rank, world):
    g = torch.Generator().manual_seed(epoch)
    mixed = [groups[i] for i in torch.randperm(len(groups), generator=g)]
    return mixed[rank::world]


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--epochs", type=int, default=5)
    ap.add_argument("--steps", type=int, default=10_000)
    ap.add_argument("--batch", type=int, default=16)
    a = ap.parse_args()
    dist.init_process_group("gloo")
    torch.set_num_threads(1)
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(0)
    corpus = make_corpus(1280)
    groups = make_batches(corpus, a.batch)
    model = DDP(Encoder())
    opt = torch.optim.Adam(model.parameters(), 1e-3)
    for epoch in range(a.epochs):
        for step, members in enumerate(shard(groups, epoch, rank, world)):
            if step == a.steps:
                break
            ids = nn.utils.rnn.pad_sequence([corpus[i] for i in members], batch_first=True)
            target = ids[:, 0] % 2
            loss = nn.functional.cross_entropy(model(ids), target)
            opt.zero_grad()
            loss.backward()
            opt.step()
        if rank == 0:
            print(f"epoch {epoch}: loss {loss.item():.4f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
