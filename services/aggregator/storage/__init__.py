"""The database: tables, transactions and what is stored in them."""
