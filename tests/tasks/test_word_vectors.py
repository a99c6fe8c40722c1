"""Word vectors by counting: the algebra against numpy's, and what the vectors are for."""

import numpy as np
import pytest
import torch

from bertkit.data.neighbourhoods import Neighbourhoods
from bertkit.tasks.word_vectors import SMOOTHING, mutual_information, strongest_eigenvectors, word_vectors


def neighbourhoods_of(counts: np.ndarray) -> Neighbourhoods:
    """Of a symmetric matrix of counts, whose diagonal says how often a token stands near itself."""
    first, second = np.nonzero(np.triu(counts))
    return Neighbourhoods(first, second, counts[first, second].astype(np.int64), counts.sum(axis=1).astype(np.int64))


def random_counts(size: int, *, seed: int = 0) -> np.ndarray:
    generator = np.random.default_rng(seed)
    upper = np.triu(generator.poisson(0.7, (size, size)))
    return upper + np.triu(upper, 1).T


def test_the_information_is_what_its_formula_says() -> None:
    """Levy, Goldberg and Dagan 2015, equation 4; the smoothing taken of both sides by halves."""
    counts = random_counts(30)
    full = counts + np.diag(np.diag(counts))  # a pair of equal tokens are two neighbours of that token
    near = full.sum(axis=1)
    smooth = near**SMOOTHING
    with np.errstate(divide="ignore"):
        one_side = np.log(full / (near[:, None] * (smooth / smooth.sum())[None]))
    wanted = np.maximum((one_side + one_side.T) / 2, 0)
    torch.testing.assert_close(
        mutual_information(neighbourhoods_of(counts)).to_dense(), torch.from_numpy(wanted).float()
    )


def test_the_strongest_eigenvectors_are_those_of_the_whole_algebra() -> None:
    generator = np.random.default_rng(1)
    basis, _ = np.linalg.qr(generator.standard_normal((80, 80)))
    values = 10.0 * 0.8 ** np.arange(80) * np.where(np.arange(80) % 3, 1, -1)  # some below 0
    matrix = torch.from_numpy((basis * values) @ basis.T).float()
    torch.manual_seed(0)
    found = strongest_eigenvectors(matrix.to_sparse(), number=8)
    signs = torch.sign((found * torch.from_numpy(basis[:, :8]).float()).sum(dim=0))
    wanted = torch.from_numpy(basis[:, :8] * np.sqrt(np.abs(values[:8]))).float()
    torch.testing.assert_close(found * signs, wanted, atol=2e-3, rtol=0)


def test_tokens_with_the_same_neighbours_have_like_vectors() -> None:
    """Tokens 0 to 9 stand beside 20 to 29, 10 to 19 beside 30 to 39, and never beside one another."""
    generator = np.random.default_rng(2)
    counts = np.zeros((40, 40), int)
    counts[:10, 20:30] = generator.poisson(5, (10, 10))
    counts[10:20, 30:] = generator.poisson(5, (10, 10))
    torch.manual_seed(0)
    vectors = word_vectors(neighbourhoods_of(counts + counts.T), width=4)
    alike = vectors @ vectors.T
    assert alike[:10, :10].min() > 0.9
    assert alike[:10, 10:20].abs().max() < 0.1


@pytest.mark.parametrize(("size", "width"), [(50, 16), (50, 50), (20, 64)])
def test_every_vector_has_length_one_or_is_zero(size: int, width: int) -> None:
    counts = random_counts(size)
    counts[[3, 7]] = counts[:, [3, 7]] = 0
    torch.manual_seed(0)
    lengths = word_vectors(neighbourhoods_of(counts), width=width).norm(dim=1)
    assert lengths.shape == (size,)
    assert lengths[[3, 7]].tolist() == [0, 0]
    known = [place for place in range(size) if place not in (3, 7)]
    torch.testing.assert_close(lengths[known], torch.ones(size - 2))


def test_without_neighbours_all_vectors_are_zero() -> None:
    assert not word_vectors(neighbourhoods_of(np.zeros((5, 5), int)), width=8).any()


def test_the_same_seed_gives_the_same_vectors() -> None:
    found = neighbourhoods_of(random_counts(60))
    torch.manual_seed(1)
    one = word_vectors(found, width=8)
    torch.manual_seed(1)
    assert torch.equal(one, word_vectors(found, width=8))
