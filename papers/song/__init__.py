"""Song, Wang, Yu, Zhang, arXiv:2210.08371."""
