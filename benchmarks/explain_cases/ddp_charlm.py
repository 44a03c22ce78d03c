"""Character model trained on two ranks with a large effective batch."""

import argparse

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset


class CharLM(nn.Module):
    def __init__(self, vocab=96, dim=384):
        super().__init__()
        self.embed = nn.Embedding(vocab, 64)
        self.mix = nn.Sequential(
            nn.Linear(64 * 16, dim * 2), nn.GELU(), nn.Linear(dim * 2, dim * 2)
        )
        self.out = nn.Linear(dim * 2, vocab)

    def forward(self, tokens):
        return self.out(F.gelu(self.mix(self.embed(tokens).flatten(1))))


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--epochs", type=int, default=3)
    p.add_argument("--steps", type=int, default=10**9, help="micro-batches per epoch at most")
    p.add_argument("--accum", type=int, default=8)
    args = p.parse_args()
    dist.init_process_group("gloo")
    torch.manual_seed(1)
    text = torch.randint(0, 96, (8192, 17))
    train = TensorDataset(text[:, :16], text[:, 16])
    sampler = DistributedSampler(train)
    loader = DataLoader(train, batch_size=8, sampler=sampler, drop_last=True)
    model = DDP(CharLM())
    opt = torch.optim.AdamW(model.parameters(), lr=3e-4)
    for epoch in range(args.epochs):
        sampler.set_epoch(epoch)
        running = 0.0
        for i, (x, y) in enumerate(loader):
            if i >= args.steps:
                break
            last = (i + 1) % args.accum == 0
            loss = F.cross_entropy(model(x), y) / args.accum
            loss.backward()
            running += loss.detach()
            if last:
                opt.step()
                opt.zero_grad(set_to_none=True)
        if dist.get_rank() == 0:
            print(f"epoch {epoch} loss {float(running):.4f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
