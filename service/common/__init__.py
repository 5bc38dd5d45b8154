"""Tools that know nothing of translation: fairness, threads, SQLite, descriptors."""
