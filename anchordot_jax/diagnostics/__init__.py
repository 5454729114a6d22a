"""How well two spaces are aligned, and why not better: UOT-Gap, without any training.

Yang, Ma, Zheng and Xie, arXiv:2609.10224 (2026).
"""
