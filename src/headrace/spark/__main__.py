"""`python -m headrace.spark`: build the class archive that halves the startup time of later sessions."""

import sys

from headrace.spark.jvm import archive_of, build_archive, find_java


def _tell(step: str) -> None:
    sys.stderr.write(f"{step} ...\n")


def main() -> int:
    existing = archive_of(find_java())
    if existing.is_file():
        sys.stdout.write(f"there already: {existing}\n")
        return 0
    sys.stderr.write("this takes about half a minute, once\n")
    made = build_archive(_tell)
    sys.stdout.write(
        f"made {made}\n" if made else "this Java writes no class archive; starts stay as they are\n"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
