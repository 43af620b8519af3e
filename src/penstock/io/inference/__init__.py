"""Row classes inferred from files: `penstock infer`."""
