"""Database layer of the ledger: connections, tables, outages, upgrades."""
