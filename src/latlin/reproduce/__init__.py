"""Floor 5: the tables and figures of the source documents, one file each."""

#: entry → module with `run(folder, quick=False)`
ENTRIES: dict[str, str] = {
    "figures-6.1-6.3": "latlin.reproduce.affine_toys",
    "figure-6.4": "latlin.reproduce.figure_6_4",
    "table-6.1": "latlin.reproduce.table_6_1",
    "figure-7.1": "latlin.reproduce.figure_7_1",
    "mixture-figures": "latlin.reproduce.mixture_figures",
}
