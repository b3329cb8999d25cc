"""A kernel as files that need nothing of tilewright: source, cubin, C header, JSON, C example."""

FORMAT = "tilewright-export"
