"""Studies of this project that compare algorithms at equal bytes."""
