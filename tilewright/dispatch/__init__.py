"""From a Problem to the Plan that runs it: which configs may, the first that works; tuned before, once."""
