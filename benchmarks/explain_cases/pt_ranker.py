"""Learning to rank, validated now and then."""

import argparse
import time

import torch
from torch import nn


def ndcg(model, queries, grades):
    with torch.no_grad():
        order = model(queries).squeeze(-1).argsort(dim=1, descending=True)
        gains = grades.gather(1, order)
        weight = 1 / torch.log2(torch.arange(gains.shape[1]) + 2.0)
        ideal = grades.sort(dim=1, descending=True).values
        return ((gains * weight).sum(1) / (ideal * weight).sum(1)).mean().item()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=1500)
    parser.add_argument("--eval-steps", type=int, default=500)
    args = parser.parse_args()
    torch.manual_seed(0)
    documents = torch.randn(1200, 20, 64)
    grades = documents[..., :3].sum(-1).clamp(0, 4).round() + 0.01
    model = nn.Sequential(
        nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, 1)
    )
    opt = torch.optim.AdamW(model.parameters(), lr=1e-3)
    begin = time.perf_counter()
    for step in range(1, args.steps + 1):
        pick = torch.randint(0, 1000, (32,))
        scores = model(documents[pick]).squeeze(-1)
        loss = -(grades[pick].softmax(1) * scores.log_softmax(1)).sum(1).mean()
        opt.zero_grad()
        loss.backward()
        opt.step()
        if step % args.eval_steps == 0:
            value = ndcg(model, documents[1000:], grades[1000:])
            print(f"step {step} loss {loss.item():.4f} ndcg {value:.4f}", flush=True)
    print(f"{args.steps / (time.perf_counter() - begin):.0f} steps/s")


if __name__ == "__main__":
    main()
