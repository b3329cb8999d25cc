"""From a Problem to a kernel that runs it: which configs may, the one taken and why, its calls on arrays."""
