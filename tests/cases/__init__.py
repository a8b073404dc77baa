"""Faults that other systems shipped, each as a black-box case."""
