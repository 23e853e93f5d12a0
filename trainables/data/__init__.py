"""Store datasets on disk and define the order in which trials read them."""
