"""Studies of private training: few-bit tables and correlated noise."""
