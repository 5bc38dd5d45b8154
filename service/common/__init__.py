"""Tools that are independent of translation: fairness, threads, SQLite, descriptors, signals."""
