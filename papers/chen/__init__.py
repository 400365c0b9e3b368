"""Chen, Li, Banerjee, arXiv:2411.06770.

`statements`, `studies`, and `curvature`, which measures Hessians.
"""
