"""Small whole networks: sentence encoder, duration predictor, image classifier."""
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.export import Dim

from .case import case, one
from .forms import MiniAttention
from .weights import Styled


# ------------------------------------------------------------------ small nets
class MiniBert(nn.Module):
    def __init__(self, rng, vocab, d, heads, layers, ff, tmax):
        super().__init__()
        self.tok, self.pos = rng.fill(nn.Embedding(vocab, d)), rng.fill(nn.Embedding(tmax, d))
        self.ln = rng.fill(nn.LayerNorm(d))
        self.att = nn.ModuleList(MiniAttention(rng, d, heads) for _ in range(layers))
        self.up = nn.ModuleList(rng.linear(d, ff) for _ in range(layers))
        self.down = nn.ModuleList(rng.linear(ff, d) for _ in range(layers))
        self.ln2 = nn.ModuleList(rng.fill(nn.LayerNorm(d)) for _ in range(layers))
        self.register_buffer("ids", torch.arange(tmax)[None], persistent=False)

    def forward(self, ids, mask):
        h = self.ln(self.tok(ids) + self.pos(self.ids[:, :ids.shape[1]]))
        for a, u, dn, ln in zip(self.att, self.up, self.down, self.ln2):
            h = a(h, mask)
            h = ln(h + dn(F.gelu(u(h))))
        m = mask[:, :, None].to(h.dtype)
        e = (h * m).sum(1) / m.sum(1).clamp(min=1e-9)
        return F.normalize(e, dim=1)


@case
def mini_bert(rng, vocab=200, d=64, heads=4, layers=2, ff=128, tmax=48):
    def inp(b, t, pad):
        mask = torch.ones(b, t, dtype=torch.int64)
        mask[-1, t - pad:] = 0
        return (rng.randint(0, vocab, (b, t)), mask)
    B, T = Dim("batch", min=1, max=4), Dim("seq", min=2, max=tmax)
    return one(MiniBert(rng, vocab, d, heads, layers, ff, tmax),
               [inp(2, 9, 3), inp(1, tmax, 0), inp(3, 20, 7)],
               "sentence-encoder in small: embeddings, masked attention, mean pooling, normalise; dynamic batch and seq",
               dict(linear=6 * layers, addmm=0), dynamic=({0: B, 1: T}, {0: B, 1: T}), tags=["dynamic", "e2e"])


class TtsPredictor(nn.Module):
    """Conv + layer norm + attention, then a style-computed projection."""

    def __init__(self, rng, d, ds, k):
        super().__init__()
        self.c1, self.c2 = rng.fill(nn.Conv1d(d, d, k, padding=k // 2)), rng.fill(nn.Conv1d(d, d, k, padding=k // 2, groups=d))
        self.ln = rng.fill(nn.LayerNorm(d))
        self.att = MiniAttention(rng, d, 2)
        self.style = Styled(rng, ds, d)
        self.out = rng.linear(d, 1)

    def forward(self, x, style):
        h = F.leaky_relu(self.c1(x.transpose(1, 2)), 0.1)
        h = self.ln(self.c2(h).transpose(1, 2))
        h = self.att(h)
        h = self.style(h.squeeze(0), style)
        return torch.exp(self.out(h)).squeeze(-1).clamp(max=50.0)


@case
def tts_predictor(rng, d=64, ds=16, k=5):
    return one(TtsPredictor(rng, d, ds, k), [(rng.randn(1, t, d), rng.randn(1, ds)) for t in (13, 40)],
               "duration predictor: conv1d, depthwise conv1d, attention, runtime style mm (must stay), log-duration head",
               dict(linear=6, mm=1, addmm=0), dynamic=({1: Dim("frames", min=4, max=64)}, None),
               rtol=1e-3, atol=1e-3, tags=["dynamic", "e2e"])


class InvertedResidual(nn.Module):
    def __init__(self, c, e):
        super().__init__()
        self.body = nn.Sequential(nn.Conv2d(c, e, 1, bias=False), nn.BatchNorm2d(e), nn.ReLU6(),
                               nn.Conv2d(e, e, 3, padding=1, groups=e, bias=False), nn.BatchNorm2d(e), nn.Hardswish(),
                               nn.Conv2d(e, c, 1, bias=False), nn.BatchNorm2d(c))

    def forward(self, x):
        return x + self.body(x)


@case
def mini_mobilenet(rng, c=16, size=32, classes=10):
    net = nn.Sequential(nn.Conv2d(3, c, 3, stride=2, padding=1), nn.ReLU(), InvertedResidual(c, 4 * c),
                        nn.MaxPool2d(2), InvertedResidual(c, 4 * c), nn.AdaptiveAvgPool2d(1), nn.Flatten(),
                        nn.Linear(c, classes))
    return one(rng.fill(net), [(rng.randn(1, 3, size, size),)],
               "conv2d, depthwise, batch norm (eval), relu6/hardswish, pooling, classifier",
               dict(linear=1, addmm=0), rtol=1e-3, atol=1e-3, tags=["e2e"])
