"""What limits a kernel: hardware counters where they can be read, else the model's figures, marked so."""
