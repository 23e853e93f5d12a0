"""A sweep as one archive, and what such an archive must be to be looked at."""
