"""List keys of older versions with the advice for each."""

from typing import Final

RETIRED: Final = {
    "train.compile": "was removed, because compiled steps were faster for few models only. Delete the key.",
    "resources.pack": "was removed. Delete the key; with resources.gpus below 1, e.g. 0.25, several trials "
    "share a GPU.",
}
"""Error message by path of the key; the message continues a sentence that begins with the key."""
