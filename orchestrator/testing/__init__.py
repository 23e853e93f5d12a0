"""What the fixtures of the pytest plug-in do: specs under test, snapshots of their expansion, chaos."""
