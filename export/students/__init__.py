"""Firefox's translation models and others like them: Marian's students with an SSRU decoder."""
