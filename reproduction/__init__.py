"""Floor 5: the tables and figures of the source documents, one file each; `registry` finds them."""
