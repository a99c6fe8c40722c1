"""Word vectors by counting: alike where tokens have like neighbours.

In: the Neighbourhoods of a text.  Out: a vector of length 1 for each token.  Next: ../model/head_start.py
"""

import numpy as np
import torch
from torch import Tensor, nn

from bertkit.data.neighbourhoods import Neighbourhoods

SMOOTHING = 0.75  # power of the neighbours' frequencies, so that rare ones do not count for too much
OVERSAMPLING, ITERATIONS = 16, 2


def word_vectors(neighbourhoods: Neighbourhoods, *, width: int) -> Tensor:
    """Return (vocabulary, width) float32 of length 1, alike where tokens have like neighbours, or 0: nothing is known.

    They are the left singular vectors of the positive pointwise mutual information of tokens and neighbours, times the
    roots of the singular values (Levy, Goldberg and Dagan 2015), turned at random by torch's generator, so that every
    head's part of a vector has its share of the strong ones.
    """
    information = mutual_information(neighbourhoods)
    vectors = strongest_singular_vectors(information, number=min(width, information.size(0)))
    turn = nn.init.orthogonal_(torch.empty(width, width))[: vectors.size(1)]
    known = torch.zeros(information.size(0), 1)
    known[information.indices()[0]] = 1.0  # the rest is 0 but for rounding
    return nn.functional.normalize(vectors @ turn, dim=1) * known


def mutual_information(neighbourhoods: Neighbourhoods) -> Tensor:
    """Return the sparse matrix (tokens, neighbours) of what is above 0: how much more often two meet than by chance."""
    found, size = neighbourhoods, len(neighbourhoods.token_counts)
    is_pair = found.first != found.second
    rows = np.concatenate([found.first, found.second[is_pair]])
    columns = np.concatenate([found.second, found.first[is_pair]])
    counts = np.concatenate([found.counts * np.where(is_pair, 1, 2), found.counts[is_pair]])
    near = np.bincount(rows, weights=counts, minlength=size)  # neighbours of each token
    ratio = counts / near[rows] / near[columns] ** SMOOTHING * (near**SMOOTHING).sum()
    above = ratio > 1
    places = torch.from_numpy(np.stack([rows[above], columns[above]]))
    values = torch.from_numpy(np.log(ratio[above])).float()
    matrix: Tensor = torch.sparse_coo_tensor(places, values, (size, size), check_invariants=True).coalesce()
    return matrix


def strongest_singular_vectors(matrix: Tensor, *, number: int) -> Tensor:
    """Return the left singular vectors (rows, number) of a sparse matrix, each times the root of its singular value.

    By iterating a random subspace (Halko, Martinsson and Tropp 2011), which needs products alone. The subspace is the
    same each time, and so are the signs: the vectors depend on the matrix only, but for rounding.
    """
    transposed = matrix.T.coalesce()
    generator = torch.Generator().manual_seed(0)
    start = torch.randn(matrix.size(0), min(number + OVERSAMPLING, matrix.size(0)), generator=generator)
    basis = torch.linalg.qr(torch.sparse.mm(matrix, start)).Q
    for _ in range(ITERATIONS):
        basis = torch.linalg.qr(torch.sparse.mm(matrix, torch.sparse.mm(transposed, basis))).Q
    left, values, _ = torch.linalg.svd(torch.sparse.mm(transposed, basis).T, full_matrices=False)
    vectors = basis @ left[:, :number]
    signs = torch.sign(start[:, 0] @ vectors)
    scaled: Tensor = vectors * signs * values[:number].sqrt()
    return scaled
