"""Extend the plan of a sweep that has begun, and define which changes are allowed."""
