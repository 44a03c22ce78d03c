"""Two towers, trained data-parallel with a hand-written reduction in one buffer."""

import argparse

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.utils import parameters_to_vector


class TwoTower(nn.Module):
    def __init__(self):
        super().__init__()
        self.user = nn.Sequential(nn.Linear(80, 256), nn.ReLU(), nn.Linear(256, 64))
        self.item = nn.Sequential(nn.Linear(50, 256), nn.ReLU(), nn.Linear(256, 64))
        self.scale = nn.Parameter(torch.tensor(2.0))

    def forward(self, user, item):
        u = nn.functional.normalize(self.user(user), dim=1)
        v = nn.functional.normalize(self.item(item), dim=1)
        return self.scale.exp() * u @ v.T


def reduce_gradients(parameters):
    flat = parameters_to_vector([p.grad for p in parameters])
    dist.all_reduce(flat)
    flat /= dist.get_world_size()
    at = 0
    for p in parameters:
        p.grad.copy_(flat[at : at + p.numel()].view_as(p))
        at += p.numel()


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--steps", type=int, default=500)
    ap.add_argument("--batch", type=int, default=128)
    a = ap.parse_args()
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    net = TwoTower()
    shared = [*net.user.parameters(), *net.item.parameters()]
    opt = torch.optim.Adam(net.parameters(), 1e-3)
    gen = torch.Generator().manual_seed(rank)
    for step in range(a.steps):
        user = torch.randn(a.batch, 80, generator=gen)
        item = user[:, :50] + 0.5 * torch.randn(a.batch, 50, generator=gen)
        loss = nn.functional.cross_entropy(net(user, item), torch.arange(a.batch))
        opt.zero_grad()
        loss.backward()
        reduce_gradients(shared)
        opt.step()
        if rank == 0 and step % 100 == 0:
            print(f"{step} loss {loss.item():.4f}", flush=True)
    if rank == 0:
        print(f"loss {loss.item():.4f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
