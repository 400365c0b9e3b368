"""Compares methods on models of language: from scratch, by LoRA, recurrent."""
