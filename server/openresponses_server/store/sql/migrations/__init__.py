"""How the tables of stored responses came to be, step by step; Alembic runs these."""
