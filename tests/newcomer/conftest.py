"""The cases are mistakes: nobody but their test imports them."""

collect_ignore_glob = ["cases/*.py"]
