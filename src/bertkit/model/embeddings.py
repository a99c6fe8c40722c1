"""The lowest storey of BERT: a vector for each token, place and segment, added up.

In: token ids, or their embeddings.  Out: the states below the first layer.  Next: encoder.py
"""

from torch import Tensor, nn
from torch.nn import functional as F

from bertkit.model.config import BertConfig


class Embeddings(nn.Module):
    """Token + position + segment embedding, LayerNorm, dropout."""

    def __init__(self, config: BertConfig) -> None:
        super().__init__()
        self.word_embeddings = nn.Embedding(
            config.vocab_size, config.hidden_size, padding_idx=config.pad_token_id
        )  # the padding row takes no gradient from being looked up
        self.position_embeddings = nn.Embedding(config.max_position_embeddings, config.hidden_size)
        self.token_type_embeddings = nn.Embedding(config.type_vocab_size, config.hidden_size)
        self.layer_norm = nn.LayerNorm(config.hidden_size, eps=config.layer_norm_eps)
        self.dropout = nn.Dropout(config.hidden_dropout_prob)

    def words_of(self, ids: Tensor, matrix: Tensor | None = None) -> Tensor:
        """Return the word embeddings (…, hidden) of ids (…); of a matrix in place of its own the gradient is sparse."""
        own = self.word_embeddings
        if matrix is None:
            words: Tensor = own(ids)
            return words
        assert matrix.shape == own.weight.shape
        assert not matrix.is_leaf, "neither optimizers nor clipping take a sparse gradient"
        return F.embedding(ids, matrix, padding_idx=own.padding_idx, sparse=True)

    def forward(self, words: Tensor, token_type_ids: Tensor, position_ids: Tensor) -> Tensor:
        """Return (batch, seq, hidden) for word embeddings of that shape and two id tensors (batch or 1, seq).

        Where padding is left out, all three are (tokens, …) in place of (batch, seq, …).
        """
        total = words + self.token_type_embeddings(token_type_ids) + self.position_embeddings(position_ids)
        output: Tensor = self.dropout(self.layer_norm(total))  # (batch, seq, hidden)
        return output
