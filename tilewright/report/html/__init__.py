"""Results as one self-contained HTML page: sortable tables, charts as SVG, no network."""
