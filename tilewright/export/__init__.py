"""A kernel as files that do not need tilewright: source, cubin, C header, JSON, C example."""

FORMAT = "tilewright-export"
