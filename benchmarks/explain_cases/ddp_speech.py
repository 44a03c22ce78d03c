"""Speech features, two ranks, four micro-batches for each update."""

import argparse
from contextlib import nullcontext

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--epochs", type=int, default=4)
    ap.add_argument("--clips", type=int, default=8192)
    ap.add_argument("--accumulation", type=int, default=4)
    args = ap.parse_args()
    dist.init_process_group("gloo")
    torch.set_num_threads(1)
    torch.manual_seed(0)
    x = torch.randn(args.clips, 40, 32)
    clips = TensorDataset(x, (x.mean((1, 2)) > 0).long())
    sampler = DistributedSampler(clips)
    loader = DataLoader(clips, batch_size=32, sampler=sampler)
    net = nn.Sequential(
        nn.Conv1d(40, 64, 3),
        nn.ReLU(),
        nn.Conv1d(64, 64, 3),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(64 * 28, 2),
    )
    ddp = DDP(net)
    opt = torch.optim.AdamW(ddp.parameters(), lr=1e-3)
    for epoch in range(args.epochs):
        sampler.set_epoch(epoch)
        for i, (bands, label) in enumerate(loader, 1):
            last = i % args.accumulation == 0 or i == len(loader)
            with nullcontext() if last else ddp.no_sync():
                loss = nn.functional.cross_entropy(ddp(bands), label)
                (loss / args.accumulation).backward()
            if last:
                opt.step()
                opt.zero_grad()
        if dist.get_rank() == 0:
            print(f"epoch {epoch} loss {loss.item():.4f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
