"""A recipe of two corpora, each in a folder of its own."""

TWO_CORPORA = """
name = "test"
output = "run"
[languages]
source = "en"
target = "de"
[data]
train = [
    { name = "one", source = "one/train.en", target = "one/train.de" },
    { name = "two", source = "two/train.en", target = "two/train.de" },
]
valid = [{ name = "one", source = "one/valid.en", target = "one/valid.de" }]
[model]
preset = "tiny"
[optimization]
max_updates = 10
learning_rate = 1e-3
"""
