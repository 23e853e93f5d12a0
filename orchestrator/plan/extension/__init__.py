"""Extends a plan: what may change once a sweep has begun."""
