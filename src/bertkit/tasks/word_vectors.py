"""Word vectors by counting: alike where tokens have like neighbours.

In: the Neighbourhoods of a text.  Out: a vector of length 1 for each token.  Next: ../model/head_start.py
"""

import numpy as np
import torch
from torch import Tensor, nn

from bertkit.data.neighbourhoods import Neighbourhoods

SMOOTHING = 0.75  # power of the neighbours' frequencies, so that rare ones do not count for too much
OVERSAMPLING, ITERATIONS = 16, 3


def word_vectors(neighbourhoods: Neighbourhoods, *, width: int) -> Tensor:
    """Return (vocabulary, width) vectors of length 1, alike where tokens have like neighbours; 0 where they have none.

    They are the eigenvectors of the positive pointwise mutual information of tokens and neighbours, each as long as
    the root of its eigenvalue (Levy, Goldberg and Dagan 2015), turned at random, so that every head's part of a vector
    has its share of the strong ones.
    """
    information = mutual_information(neighbourhoods)
    vectors = strongest_eigenvectors(information, number=min(width, information.size(0)))
    turn = nn.init.orthogonal_(torch.empty(width, width))[: vectors.size(1)]
    known = torch.zeros(information.size(0), 1)
    known[information.indices()[0]] = 1.0  # the rest is 0 but for rounding
    return nn.functional.normalize(vectors @ turn, dim=1) * known


def mutual_information(found: Neighbourhoods) -> Tensor:
    """The matrix (vocabulary, vocabulary), sparse and symmetric, of what is above 0."""
    size = len(found.token_counts)
    is_pair = found.first != found.second
    rows = np.concatenate([found.first, found.second[is_pair]])
    columns = np.concatenate([found.second, found.first[is_pair]])
    counts = np.concatenate([found.counts * np.where(is_pair, 1, 2), found.counts[is_pair]])
    near = np.bincount(rows, weights=counts, minlength=size)  # neighbours of each token
    # The mean, in logarithms, of smoothing the frequencies of the one and of the other.
    expected = (near[rows] * near[columns]) ** ((1 + SMOOTHING) / 2) / (near**SMOOTHING).sum()
    information = np.log(counts / expected)
    above = information > 0
    places = torch.from_numpy(np.stack([rows, columns])[:, above])
    values = torch.from_numpy(information[above]).float()
    matrix: Tensor = torch.sparse_coo_tensor(places, values, (size, size), check_invariants=True).coalesce()
    return matrix


def strongest_eigenvectors(matrix: Tensor, *, number: int) -> Tensor:
    """The eigenvectors (rows, number) of a symmetric matrix, each as long as the root of its eigenvalue's size.

    By iterating a random subspace (Halko, Martinsson and Tropp 2011), which needs products alone.
    """
    basis = torch.randn(matrix.size(0), min(number + OVERSAMPLING, matrix.size(0)))
    for _ in range(ITERATIONS + 1):
        basis = torch.linalg.qr(torch.sparse.mm(matrix, basis)).Q
    small = basis.T @ torch.sparse.mm(matrix, basis)
    values, vectors = torch.linalg.eigh((small + small.T) / 2)
    strongest = values.abs().argsort(descending=True)[:number]
    scaled: Tensor = basis @ vectors[:, strongest] * values[strongest].abs().sqrt()
    return scaled
