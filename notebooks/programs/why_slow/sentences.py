"""Train on sentences of 10 to 400 words on two ranks, each batch with one length.

`torchrun --nproc-per-node 2 sentences.py`
"""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.functional import cross_entropy
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("gloo")
torch.set_num_threads(1)
rank = dist.get_rank()
torch.manual_seed(rank)  # each rank draws its own sentences


class Classifier(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(2000, 128)
        self.block = nn.TransformerEncoderLayer(128, 4, 256, dropout=0.0, batch_first=True)
        self.out = nn.Linear(128, 10)

    def forward(self, words):
        return self.out(self.block(self.embed(words)).mean(dim=1))


model = DistributedDataParallel(Classifier())
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)

for step in range(300):
    length = int(10 * 40 ** torch.rand(()))  # a batch holds sentences of one length
    words, labels = torch.randint(2000, (8, length)), torch.randint(10, (8,))
    optimizer.zero_grad()
    cross_entropy(model(words), labels).backward()
    optimizer.step()
    if rank == 0 and step % 100 == 0:
        print(f"step {step}", flush=True)
dist.destroy_process_group()
