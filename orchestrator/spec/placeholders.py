"""Texts of a first spec that its author replaces."""

QUESTION = "What do you want to know?"
ARM_REASON = "say why"
