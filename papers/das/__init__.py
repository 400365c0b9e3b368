"""Das, Hashemi, Sanghavi, Dhillon, arXiv:2106.07094."""
