"""Linear layers by where their weight comes from: a constant in some form, or data made at run time."""
import torch
import torch.nn as nn
import torch.nn.functional as F

from .case import case, one


# ------------------------------------------------------------- constant weights
@case
def linear_const(rng, k=64, h=96, n=32, m=5):
    net = nn.Sequential(rng.linear(k, h), nn.ReLU(), rng.linear(h, n))
    return one(net, [(rng.randn(m, k),) for _ in range(2)],
               "permute(parameter) feeds both addmm: both become linear(x, W, b), no permute left",
               dict(linear=2, addmm=0, mm=0, permute=0))


@case
def linear_3d_nobias(rng, b=2, s=7, k=48, n=80):
    return one(rng.linear(k, n, bias=False), [(rng.randn(b, s, k),)],
               "view -> mm(permute(parameter)) -> view: linear; the views may stay or go",
               dict(linear=1, mm=0, permute=0))


@case
def linear_training_ir(rng, k=64, n=40, m=3):
    net = nn.Sequential(rng.linear(k, n), nn.GELU(), rng.linear(n, k, bias=False))
    return one(net, [(rng.randn(m, k),)],
               "no run_decompositions(): aten.linear.default is in the file already",
               dict(linear=2, addmm=0, mm=0), decompose=False, tags=["training_ir"])


class MmParam(nn.Module):
    def __init__(self, w):
        super().__init__()
        self.w = w

    def forward(self, x):
        return torch.mm(x, self.w)


@case
def mm_param_untransposed(rng, k=48, n=64, m=6):
    return one(MmParam(rng.param(k, n)), [(rng.randn(m, k),)],
               "mm(x, parameter[K,N]) with no permute: linear with the weight transposed at load "
               "time, or left as mm; the numbers decide",
               dict(total=1, linear=[0, 1], mm=[0, 1]))


class Transposes(nn.Module):
    def __init__(self, ws):
        super().__init__()
        self.w = nn.ParameterList(ws)

    def forward(self, x):
        w = self.w
        return (x @ w[0].t(), x @ w[1].transpose(0, 1), x @ w[2].permute(1, 0), x @ w[3].T,
                x @ w[4].transpose(-1, -2), x @ w[5].t().contiguous(), x @ w[6].t().clone(),
                x @ w[7].t().t().t())


@case
def weight_transposes(rng, k=32, n=24, m=4):
    return one(Transposes([rng.param(n, k) for _ in range(8)]), [(rng.randn(m, k),)],
               "t/transpose/permute/T/transpose(-1,-2)/triple t of a parameter all decompose to "
               "permute [1,0] chains: linear. The contiguous()/clone() chains (two) may stay mm",
               dict(linear=[6, 8], mm=[0, 2], total=8))


class Views(nn.Module):
    def __init__(self, base, k):
        super().__init__()
        # buffers: export copies the module, and a copied Parameter would lose its shared storage
        self.register_buffer("a", base[2:18])                                # offset, dense
        self.register_buffer("b", base[10:34])                               # overlaps a
        self.register_buffer("c", base[:, 4:4 + k // 2])                     # row gap + offset
        self.register_buffer("d", base.t()[:k, :20].t())                     # strided view of a view

    def forward(self, x):
        h = x[:, :self.c.shape[1]]
        return F.linear(x, self.a), F.linear(x, self.b), F.linear(h, self.c), F.linear(x, self.d)


@case
def weight_aliases(rng, k=48, m=3):
    return one(Views(rng.randn(40, k, scale=0.2), k), [(rng.randn(m, k),)],
               "four weights are views (storage_offset, row gaps, overlap) of ONE stored payload "
               "file: all linear, each with its own sizes/strides/offset",
               dict(linear=4, addmm=0, mm=0))


class NonContig(nn.Module):
    def __init__(self, wt, w3):
        super().__init__()
        self.wt = nn.Parameter(wt.t(), requires_grad=False)                  # strides (1, n)
        self.register_buffer("w3", w3.permute(2, 0, 1))                      # 3-d permuted

    def forward(self, x):
        return F.linear(x, self.wt), torch.matmul(x, self.w3[1].t())


@case
def weight_noncontiguous(rng, k=40, n=56, m=3):
    return one(NonContig(rng.randn(k, n, scale=0.2), rng.randn(n, k, 3, scale=0.2)),
               [(rng.randn(m, k),)],
               "weight payload is stored column-major: first linear. The second weight is "
               "permute(select(buffer)): linear or mm",
               dict(linear=[1, 2], mm=[0, 1], total=2))


class Tied(nn.Module):
    def __init__(self, w):
        super().__init__()
        self.emb = nn.Embedding(*w.shape)
        self.emb.weight = w
        self.head = nn.Linear(w.shape[1], w.shape[0], bias=False)
        self.head.weight = self.emb.weight

    def forward(self, ids):
        return self.head(torch.tanh(self.emb(ids)))


@case
def tied_embedding(rng, vocab=96, d=32, b=2, t=5):
    return one(Tied(rng.param(vocab, d)), [(rng.randint(0, vocab, (b, t)),)],
               "one payload is read by aten.embedding and, permuted, by mm: linear; the embedding "
               "must still see the original layout",
               dict(linear=1, mm=0, embedding=1))


class BufferWeights(nn.Module):
    def __init__(self, a, b):
        super().__init__()
        self.register_buffer("a", a)
        self.register_buffer("b", b, persistent=False)

    def forward(self, x):
        return F.linear(F.linear(x, self.a), self.b)


@case
def weight_buffer(rng, k=40, h=24, n=56, m=3):
    return one(BufferWeights(rng.randn(h, k, scale=.2), rng.randn(n, h, scale=.2)), [(rng.randn(m, k),)],
               "unmutated buffers (one persistent, one not: its payload is under data/constants) are constants: linear",
               dict(linear=2, mm=0))


class Lifted(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.c = c                                                           # plain attribute

    def forward(self, x):
        y = F.linear(x, self.c)
        return y * torch.tensor([2.0, 3.0]).repeat(self.c.shape[0] // 2) + torch.tensor(0.5)


@case
def weight_lifted_constant(rng, k=32, n=48, m=4):
    return one(Lifted(rng.randn(n, k, scale=.2)), [(rng.randn(m, k),)],
               "the weight is a lifted tensor constant (CONSTANT_TENSOR): linear",
               dict(linear=1, mm=0))


# ------------------------------------------------------------ runtime weights
class Styled(nn.Module):
    """Style-conditioned 1x1 mix: the matrix itself is computed from an input."""

    def __init__(self, rng, ds, d):
        super().__init__()
        self.to_mat = rng.linear(ds, d * d)
        self.d = d

    def forward(self, x, style):
        w = self.to_mat(style).view(1, self.d, self.d)
        w = w.squeeze(0).permute(1, 0)
        return torch.mm(x, w)


@case
def mm_runtime_transposed(rng, ds=16, d=64, m=10):
    return one(Styled(rng, ds, d), [(rng.randn(m, d), rng.randn(1, ds)) for _ in range(2)],
               "mm(x, permute(squeeze(view(addmm)))) : the matrix is runtime data, so this mm MUST stay "
               "mm; only the to_mat layer becomes linear. A pass that looks for "
               "permute only rewrites it",
               dict(linear=1, mm=1, addmm=0))


class AddmmComputed(nn.Module):
    def __init__(self, b, w, n, k):
        super().__init__()
        self.b, self.w, self.n, self.k = b, w, n, k

    def forward(self, x, g):
        w = self.w * torch.sigmoid(g).unsqueeze(1)
        return torch.addmm(self.b, x, w.t())


@case
def addmm_computed_weight(rng, m=6, k=32, n=40):
    return one(AddmmComputed(rng.param(n), rng.param(n, k), n, k),
               [(rng.randn(m, k), rng.randn(n)) for _ in range(2)],
               "weight = parameter * gate(user input), then t(): addmm MUST stay",
               dict(linear=0, addmm=1))


class ConstExpr(nn.Module):
    def __init__(self, w, g):
        super().__init__()
        self.w, self.g = w, g

    def forward(self, x):
        return F.linear(x, self.w * self.g.unsqueeze(1))


@case
def weight_const_expression(rng, m=4, k=32, n=40):
    return one(ConstExpr(rng.param(n, k), rng.param(n)), [(rng.randn(m, k),)],
               "weight = parameter * parameter: mm stays unless the runtime folds constants first",
               dict(linear=[0, 1], mm=[0, 1], total=1))


class UserWeight(nn.Module):
    def forward(self, x, w, b):
        return F.linear(x, w), F.linear(x, w, b)


@case
def weight_user_input(rng, m=5, k=24, n=40):
    return one(UserWeight(),
               [(rng.randn(m, k), rng.randn(n, k, scale=.2), rng.randn(n)) for _ in range(3)],
               "the weight is an input that changes per call: mm and addmm MUST stay",
               dict(linear=0, mm=1, addmm=1))


class MutatedWeight(nn.Module):
    def __init__(self, w, b):
        super().__init__()
        self.register_buffer("w", w)
        self.lin_b = b

    def forward(self, x, lr):
        y = torch.addmm(self.lin_b, x, self.w.t())          # reads the value BEFORE the update
        self.w.add_(torch.mm(torch.tanh(y).t(), x) * lr)
        z = F.linear(x, self.w)                           # reads the value AFTER the update
        return y, z


@case
def weight_mutated_buffer(rng, m=4, k=32, n=24):
    return one(MutatedWeight(rng.randn(n, k, scale=.2), rng.param(n)),
               [(rng.randn(m, k), torch.tensor(0.01 * (i + 1))) for i in range(4)],
               "buffer w is in buffers_to_mutate: neither its addmm (old value) nor its mm (new value) "
               "nor the update's mm may become linear; call i+1 must see call i's buffer",
               dict(linear=0, addmm=1, mm=2), stateful=True)
