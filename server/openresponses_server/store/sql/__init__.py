"""Stored responses in a database: a SQLite file for one machine, PostgreSQL for many."""
