"""Recurrence over depth, over the chunks of a sequence and over spans; selection of active units."""
