"""Files of users: bounded reading of text, tables and rows of CSV, and files that are written whole or not at all."""
