"""The database under the ledger: connections, tables, outages, upgrades."""
