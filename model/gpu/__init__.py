"""Training in minutes on one large GPU: a teacher, back-translation, and students."""
