"""Deep residual MLP for tabular data, data-parallel."""

import argparse

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP


class Block(nn.Module):
    def __init__(self, d):
        super().__init__()
        self.norm = nn.LayerNorm(d)
        self.fc = nn.Linear(d, d)

    def forward(self, h):
        return h + torch.tanh(self.fc(self.norm(h)))


class DeepNet(nn.Module):
    def __init__(self, depth, d=24):
        super().__init__()
        self.inp = nn.Linear(32, d)
        self.blocks = nn.ModuleList(Block(d) for _ in range(depth))
        self.out = nn.Linear(d, 4)

    def forward(self, x):
        h = self.inp(x)
        for block in self.blocks:
            h = block(h)
        return self.out(h)


def get_args():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=400)
    parser.add_argument("--depth", type=int, default=100)
    parser.add_argument("--lr", type=float, default=0.01)
    return parser.parse_args()


def main(args):
    dist.init_process_group(backend="gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.set_num_threads(1)
    torch.manual_seed(7)
    features = torch.randn(4096, 32)
    labels = (features[:, 0] > 0).long() + 2 * (features[:, 1] > 0).long()
    model = DDP(DeepNet(args.depth), find_unused_parameters=True)
    optimizer = torch.optim.SGD(model.parameters(), lr=args.lr, foreach=True)
    order = torch.randperm(len(features))[rank::world]
    for step in range(args.steps):
        pick = order[torch.arange(step * 16, step * 16 + 16) % len(order)]
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(features[pick]), labels[pick])
        loss.backward()
        optimizer.step()
        if rank == 0 and step % 100 == 0:
            print(step, f"{loss.item():.4f}")
    if rank == 0:
        print(f"loss {loss.item():.4f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main(get_args())
