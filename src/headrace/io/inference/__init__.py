"""Row classes inferred from files: `headrace infer`."""
