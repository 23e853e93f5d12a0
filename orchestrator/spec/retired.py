"""Keys that earlier versions had, and what to write instead."""

from typing import Final

RETIRED: Final = {
    "train.compile": "was removed, because compiled steps were faster for few models only. Delete the key.",
    "resources.pack": "was removed. Delete the key; with resources.gpus below 1, e.g. 0.25, several trials "
    "share a GPU.",
}
"""Path of each key to the end of the sentence that begins with it."""
