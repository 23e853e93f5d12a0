"""Run one sweep: its folder, its session, the recorder of its events, and its removal."""
