"""What comes back from another process is what would have been made here."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from toy_data import TOY

from bertkit.data import exchange
from bertkit.data.encoding import EncodingSettings, encode_documents
from bertkit.data.exchange import SentIds, encode_sent, remember, send, take
from bertkit.text.documents import Document
from bertkit.text.tokenizer import make_tokenizer

TOKENIZER = make_tokenizer(TOY, do_lower_case=True)
SENTENCE = st.text("明月几 有。，\u200b\naé𠮷", min_size=1, max_size=20)
DOCUMENT = st.one_of(
    st.builds(lambda text: Document("a", text), SENTENCE),
    st.builds(lambda given: Document("b", "\n".join(given), tuple(given)), st.lists(SENTENCE, min_size=1, max_size=3)),
)


@settings(deadline=None, max_examples=60)
@given(documents=st.lists(DOCUMENT, max_size=6), segmenter=st.sampled_from(["none", "spaces"]))
def test_documents_sent_to_a_process_come_back_as_if_encoded_here(
    tmp_path_factory: pytest.TempPathFactory, documents: list[Document], segmenter: str
) -> None:
    folder = tmp_path_factory.mktemp("exchange")
    for name, content in TOKENIZER.files().items():
        (folder / name).write_bytes(content)
    (folder / "0").write_bytes(b"what was longer before" * 99)  # files are written again and again
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(exchange, "_REMEMBERED", [])
        remember(folder, None, None, segmenter)
        sent = encode_sent(send(documents, folder / "0"))
    assert isinstance(sent, SentIds)
    found = take(sent).called([document.id for document in documents])
    wanted = encode_documents(documents, EncodingSettings(TOKENIZER, None, None, segmenter))
    assert found.ids == wanted.ids
    assert found.unknown_characters == wanted.unknown_characters
    assert (found.word_starts is None) == (segmenter == "none")
    for name in ("tokens", "word_starts", "sentence_lengths", "sentence_counts", "dropped_sentences"):
        one, other = getattr(found, name), getattr(wanted, name)
        assert one is other is None or (one.dtype == other.dtype and one.tolist() == other.tolist())
