"""Word vectors by counting: the algebra against numpy's, and what the vectors are for."""

from collections.abc import Iterator

import numpy as np
import pytest
import torch

from bertkit.data.neighbourhoods import Neighbourhoods
from bertkit.tasks.word_vectors import SMOOTHING, mutual_information, strongest_singular_vectors, word_vectors


def neighbourhoods_of(counts: np.ndarray) -> Neighbourhoods:
    """Of a symmetric matrix of counts, whose diagonal says how often a token stands near itself."""
    first, second = np.nonzero(np.triu(counts))
    return Neighbourhoods(first, second, counts[first, second].astype(np.int64), counts.sum(axis=1).astype(np.int64))


def random_counts(size: int, *, seed: int = 0) -> np.ndarray:
    generator = np.random.default_rng(seed)
    upper = np.triu(generator.poisson(0.7, (size, size)))
    return upper + np.triu(upper, 1).T


def test_the_information_is_what_its_formula_says() -> None:
    """Levy, Goldberg and Dagan 2015, equations 1 and 4."""
    counts = random_counts(30)
    full = counts + np.diag(np.diag(counts))  # a pair of equal tokens are two neighbours of that token
    near = full.sum(axis=1)
    smooth = near**SMOOTHING
    with np.errstate(divide="ignore"):
        wanted = np.maximum(np.log(full / (near[:, None] * (smooth / smooth.sum())[None])), 0)
    found = mutual_information(neighbourhoods_of(counts)).to_dense()
    torch.testing.assert_close(found, torch.from_numpy(wanted).float())


def test_the_strongest_singular_vectors_are_those_of_the_whole_algebra() -> None:
    generator = np.random.default_rng(1)
    (left, _), (right, _) = (np.linalg.qr(generator.standard_normal((300, 300))) for _ in range(2))
    values = 10.0 / np.arange(1, 301) ** 0.5  # as slowly as those of a language fall
    matrix = torch.from_numpy((left * values) @ right.T).float().to_sparse()
    found = strongest_singular_vectors(matrix, number=6)
    signs = torch.sign((found * torch.from_numpy(left[:, :6]).float()).sum(dim=0))
    wanted = torch.from_numpy(left[:, :6] * np.sqrt(values[:6])).float()
    alike = torch.nn.functional.cosine_similarity(found * signs, wanted, dim=0)
    assert alike[:3].min() > 0.99
    assert alike.min() > 0.9
    assert torch.equal(found, strongest_singular_vectors(matrix, number=6))


@pytest.mark.usefixtures("threads_as_before")
def test_the_vectors_do_not_depend_on_the_number_of_threads() -> None:
    found, vectors = neighbourhoods_of(random_counts(400)), []
    for threads in (1, 2):
        torch.set_num_threads(threads)
        torch.manual_seed(0)
        vectors.append(word_vectors(found, width=32))
    torch.testing.assert_close(*vectors, atol=1e-3, rtol=0)


@pytest.fixture
def threads_as_before() -> Iterator[None]:
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


def test_every_part_of_a_vector_has_its_share_of_the_strong_ones() -> None:
    torch.manual_seed(0)
    vectors = word_vectors(neighbourhoods_of(random_counts(200)), width=64)
    shares = vectors.view(-1, 8, 8).pow(2).sum(dim=2).mean(dim=0)  # of eight heads
    torch.testing.assert_close(shares, torch.full((8,), 1 / 8), atol=0.03, rtol=0)


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
