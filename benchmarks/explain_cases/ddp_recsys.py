"""Click model: an embedding bag over a user's history, then a small tower."""

import argparse

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP


class ClickModel(nn.Module):
    def __init__(self, items, dim):
        super().__init__()
        self.items = nn.EmbeddingBag(items, dim, mode="mean", sparse=True)
        self.tower = nn.Sequential(nn.Linear(dim, 64), nn.ReLU(), nn.Linear(64, 1))

    def forward(self, history):
        return self.tower(self.items(history)).squeeze(1)


def sample(step, rank, batch, items):
    g = torch.Generator().manual_seed(1000 * step + rank)
    history = torch.randint(0, items, (batch, 40), generator=g)
    return history, (history[:, 0] % 2).float()


def main():
    cli = argparse.ArgumentParser()
    cli.add_argument("--steps", type=int, default=150)
    cli.add_argument("--items", type=int, default=3000)
    cli.add_argument("--batch", type=int, default=512)
    args = cli.parse_args()
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.set_num_threads(1)
    torch.manual_seed(42)
    model = DDP(ClickModel(args.items, 64))
    optim = torch.optim.SGD(model.parameters(), lr=0.5)
    criterion = nn.BCEWithLogitsLoss()
    for step in range(args.steps):
        history, clicked = sample(step, rank, args.batch, args.items)
        optim.zero_grad()
        loss = criterion(model(history), clicked)
        loss.backward()
        optim.step()
        if rank == 0 and step % 25 == 0:
            print(f"step={step} loss={loss.item():.4f}", flush=True)
    if rank == 0:
        print(f"loss={loss.item():.4f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
