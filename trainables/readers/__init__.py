"""Read and validate published files. Generates no examples."""
