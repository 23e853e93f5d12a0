"""Implement the fixtures of the pytest plug-in: specs under test, snapshots, chaos tests."""
