"""Word vectors by counting: alike where tokens have like neighbours.

In: the Neighbourhoods of a text.  Out: a vector of length 1 for each token.  Next: ../model/head_start.py
"""

import numpy as np
import torch
from torch import Tensor, nn

from bertkit.console import Progress
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
    first, second, counts = neighbourhoods.first, neighbourhoods.second, neighbourhoods.counts
    size = len(neighbourhoods.token_counts)
    near = np.bincount(first, weights=counts, minlength=size)  # neighbours of each token
    near += np.bincount(second, weights=counts, minlength=size)
    total = (near**SMOOTHING).sum()
    is_pair = first != second
    counts = np.where(is_pair, counts, 2 * counts)  # two equal tokens are each a neighbour of the other
    kept = []
    for rows, columns, times in ((first, second, counts), (second[is_pair], first[is_pair], counts[is_pair])):
        ratio = times / near[rows] / near[columns] ** SMOOTHING * total
        above = ratio > 1
        kept.append((rows[above], columns[above], np.log(ratio[above])))
    places = torch.from_numpy(np.stack([np.concatenate([part[axis] for part in kept]) for axis in (0, 1)]))
    values = torch.from_numpy(np.concatenate([part[2] for part in kept])).float()
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
    with Progress("word vectors", total=ITERATIONS + 2, unit="passes") as progress:
        basis = torch.linalg.qr(torch.sparse.mm(matrix, start)).Q
        progress.advance(1)
        for _ in range(ITERATIONS):
            basis = torch.linalg.qr(torch.sparse.mm(matrix, torch.sparse.mm(transposed, basis))).Q
            progress.advance(1)
        left, values, _ = torch.linalg.svd(torch.sparse.mm(transposed, basis).T, full_matrices=False)
        progress.advance(1)
    vectors = basis @ left[:, :number]
    signs = torch.sign(start[:, 0] @ vectors)
    scaled: Tensor = vectors * signs * values[:number].sqrt()
    return scaled
