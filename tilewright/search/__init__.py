"""Which config to try next: legal ones, a time for each, what trials say of both. No backend, no clock."""
