"""Results as one HTML page that needs nothing else: tables that sort, charts as SVG, no network."""
