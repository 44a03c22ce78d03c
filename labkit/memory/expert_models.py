"""A transformer with experts: parameters, those that a token uses, and how experts are loaded.

>>> MODELS["Mixtral 8x7B"].parameters, MODELS["DeepSeek-V3"].parameters
(46702792704, 671026419200)
>>> f"{MODELS['Mixtral 8x7B'].active / 1e9:.2f} billion for each token"
'12.88 billion for each token'
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

from labkit.arguments import number, whole
from labkit.kinds import LabError


def grouped_attention(hidden: int, heads: int, groups: int, size: int) -> int:
    """Returns the parameters of attention whose heads share keys and values in groups."""
    return hidden * size * (2 * heads + 2 * groups)


def latent_attention(
    hidden: int, heads: int, queries: int, latent: int, size: int, rotary: int
) -> int:
    """Returns those of DeepSeek's attention, which keeps `latent` numbers for keys and values."""
    q = hidden * queries + queries + queries * heads * (size + rotary)
    k_v = hidden * (latent + rotary) + latent + latent * heads * 2 * size
    return q + k_v + heads * size * hidden


@dataclass(frozen=True, kw_only=True)
class ExpertModel:
    """A transformer whose MLPs, from layer `dense` on, are experts of three matrices."""

    layers: int
    hidden: int
    vocabulary: int
    attention: int
    """Parameters of a layer's attention."""
    cache: int
    """Numbers of a token that a layer's attention keeps for the next tokens."""
    experts: int
    chosen: int
    width: int
    shared: int = 0
    """Experts that all tokens go through."""
    dense: int = 0
    """Layers at the beginning, with an MLP of `dense_width`."""
    dense_width: int = 0
    biased: bool = False
    """Whether the router has a bias for each expert."""

    @property
    def expert(self) -> int:
        """Parameters of an expert."""
        return 3 * self.hidden * self.width

    @property
    def parameters(self) -> int:
        """All, with embedding and head."""
        return self._with(self.experts)

    @property
    def active(self) -> int:
        """Those that a token uses, with the whole embedding and head."""
        return self._with(self.chosen)

    def _with(self, experts: int) -> int:
        h, sparse = self.hidden, self.layers - self.dense
        router = self.experts * (h + self.biased)
        mlps = sparse * (router + (experts + self.shared) * self.expert)
        mlps += self.dense * 3 * h * self.dense_width
        return mlps + self.layers * (self.attention + 2 * h) + h + 2 * self.vocabulary * h

    def cache_bytes(self, size: int = 2) -> int:
        """Returns the bytes of keys and values of a token, in numbers of `size` bytes."""
        return self.layers * self.cache * size

    def exchange_bytes(self, tokens: int, *, there: int = 2, back: int = 2) -> int:
        """Returns the bytes that a rank sends and gets back for a layer's experts.

        `there` and `back` are the bytes of a number; every choice leaves the rank.
        """
        return tokens * (self.chosen + self.shared) * self.hidden * (there + back)


# Their published configurations: Jiang et al. 2024, DeepSeek-AI 2024.
MODELS = {
    "Mixtral 8x7B": ExpertModel(
        layers=32, hidden=4096, vocabulary=32_000, attention=grouped_attention(4096, 32, 8, 128),
        cache=2 * 8 * 128, experts=8, chosen=2, width=14_336,
    ),
    "DeepSeek-V3": ExpertModel(
        layers=61, hidden=7168, vocabulary=129_280,
        attention=latent_attention(7168, 128, 1536, 512, 128, 64), cache=512 + 64,
        experts=256, chosen=8, width=2048, shared=1, dense=3, dense_width=18_432, biased=True,
    ),
}  # fmt: skip


class Load(NamedTuple):
    """How a layer's choices are spread, as multiples of an even share."""

    experts: list[float]
    """Of each expert, before any is dropped."""
    dropped: float
    """The share of all choices that find no room."""
    slowest: float
    """What the fullest rank computes, over the mean of all choices."""


def load(*, experts: int, chosen: int, ranks: int, skew: float, capacity: float) -> Load:
    """Returns the load of experts of which number n is wanted in proportion to 1/(n + 1)^skew.

    A token chooses an expert once at most, so no expert gets more choices than there are tokens.
    Each takes `capacity` times an even share of the choices, and drops the rest.
    """
    whole("experts", experts, at_least=1)
    if experts % whole("ranks", ranks, at_least=1):
        raise LabError(f"experts must be a multiple of ranks = {ranks}, got {experts}.")
    whole("chosen", chosen, at_least=1, at_most=experts)
    number("skew", skew, at_least=0)
    number("capacity", capacity, above=0)
    wanted = [(n + 1) ** -skew for n in range(experts)]
    shares: list[float] = []  # of the tokens, the largest first
    for n, one in enumerate(wanted):
        shares.append(min(1.0, (chosen - math.fsum(shares)) * one / math.fsum(wanted[n:])))
    even = [share * experts / chosen for share in shares]
    kept = [min(one, capacity) for one in even]
    held = experts // ranks
    full = max(math.fsum(kept[at : at + held]) for at in range(0, experts, held))
    return Load(even, 1 - math.fsum(kept) / experts, full / held)
