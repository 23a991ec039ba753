"""The only SQL. SQLite and PostgreSQL behave the same; one suite runs on both."""
