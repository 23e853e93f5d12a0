"""How layers recur: over depth, over the chunks of a sequence, over spans; which units are still active."""
