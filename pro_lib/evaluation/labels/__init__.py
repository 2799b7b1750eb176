"""Labels by hand: which answers to label, the label file, and AUROCs with intervals from some labels."""
