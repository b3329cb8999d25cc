"""How long something takes: rounds of runs side by side, for whoever times; a device's rates, calibrated."""
