"""Chen, Li, Banerjee, arXiv:2411.06770; `curvature` measures Hessians."""
