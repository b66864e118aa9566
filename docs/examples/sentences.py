"""From sentences to named clusters: messages to a help desk, with vectors made of their words.

    python docs/examples/sentences.py

The messages are put together from phrases, about eight matters that the program is not told. Each word has a fixed
random vector, so the vector of a message needs no model and no download. An embedding model takes the place of
`vectors` in practice: the rest stays as it is. A cluster is named by the words that its messages have more often than
others.
"""

import re
import zlib
from collections import Counter

import numpy as np
from sklearn.metrics import adjusted_rand_score

from shoal import StreamingDPMixture

N, HELD, D = 4_000, 500, 384
OPENINGS = ("hello", "good morning", "hi there", "dear team", "hey", "please help", "a question")
CLOSINGS = ("thanks a lot", "kind regards", "can you look at it today", "thank you", "what shall I do", "please answer")
MATTERS = {
    "login": "password rejected|cannot log in|account locked|reset link never arrives|login page says wrong password",
    "invoice": "invoice shows wrong amount|charged twice on invoice|invoice address is old|need invoice as pdf"
    "|tax missing on invoice",
    "delivery": "parcel still not delivered|courier left parcel outside|delivery late again"
    "|parcel tracking shows nothing|delivery to wrong street",
    "refund": "refund not received|want money back|returned shoes and wait for refund|refund only half of money"
    "|money back takes weeks",
    "crash": "app crashes on start|app freezes after update|crash when opening photos|update broke app"
    "|app closes with error",
    "printer": "printer prints blank pages|paper jam in printer|printer offline since monday"
    "|toner low but printer full of toner|printer paper tray stuck",
    "network": "wifi drops every hour|internet slow in office|wifi router blinks red|no internet connection"
    "|connection lost with wifi router",
    "meeting": "move meeting to friday|room booked twice for meeting|meeting invitation without calendar link"
    "|calendar shows meeting at night|cancel room and meeting",
}


def messages(n: int, rng: np.random.Generator) -> tuple[list[str], list[str]]:
    """n messages, and the matter of each. Some matters are rare."""
    share = 1.0 / np.arange(1, len(MATTERS) + 1) ** 0.7
    matters = rng.choice(list(MATTERS), size=n, p=share / share.sum())
    texts = []
    for matter in matters:
        phrases = rng.choice(MATTERS[matter].split("|"), size=2, replace=False)
        texts.append(f"{rng.choice(OPENINGS)}, {' and '.join(phrases)}. {rng.choice(CLOSINGS)}!")
    return texts, matters.tolist()


def words(text: str) -> list[str]:
    """The words of a text, in lower case."""
    return re.findall("[a-z]+", text.lower())


def vectors(texts: list[str], known: list[str]) -> np.ndarray:
    """Unit vectors (N, D): sums of word vectors, weighted by how rare words are among the texts `known`."""
    seen = Counter(word for text in known for word in set(words(text)))
    table = {word: np.random.default_rng(zlib.crc32(word.encode())).normal(size=D) for word in seen}
    weight = {word: np.log(len(known) / count) for word, count in seen.items()}
    x = np.array([sum(weight[word] * table[word] for word in words(text) if word in table) for text in texts])
    return np.asarray(x / np.linalg.norm(x, axis=1, keepdims=True))


def name_of(texts: list[str], others: list[str]) -> str:
    """Three words that are in many of the texts and in few of the others."""
    own, rest = (Counter(word for text in group for word in set(words(text))) for group in (texts, others))
    lift = {word: count / len(texts) - rest[word] / max(len(others), 1) for word, count in own.items()}
    return ", ".join(sorted(lift, key=lambda word: (-lift[word], word))[:3])


def main() -> None:
    texts, matters = messages(N + HELD, np.random.default_rng(0))
    x = vectors(texts, texts[:1_000])
    model = StreamingDPMixture("subspace")
    for start in range(0, N, 500):
        model.partial_fit(x[start : start + 500])
    labels = model.predict(x, level="cluster")
    print("cluster  messages  name")
    for cluster, size in sorted(Counter(labels.tolist()).items(), key=lambda item: -item[1]):
        inside = labels == cluster
        own, others = ([text for text, of in zip(texts, inside, strict=True) if of == flag] for flag in (True, False))
        print(f"{cluster:7}  {size:8}  {name_of(own, others)}")
    print(f"agreement with the matters of {HELD} new messages: {adjusted_rand_score(matters[N:], labels[N:]):.3f}")


if __name__ == "__main__":
    main()
