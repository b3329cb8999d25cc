"""What limits a kernel: from hardware counters if they can be read, else the model's figures, marked so."""
