"""The database: tables, transactions and stored values."""
