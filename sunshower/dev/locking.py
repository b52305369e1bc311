"""Renews the lock files after a change of a release: `python -m sunshower.dev.locking`."""

from __future__ import annotations

import hashlib
import sys

from sunshower.dev.jars import RELEASES, Release, cache, maven


def lines(release: Release) -> list[str]:
    """All artifacts that the release needs, resolved as by Maven, with their SHA-256."""
    context = maven(cache())
    asked, more = context.resolver.resolve(
        [context.create_dependency(root) for root in release.roots]
    )
    sha256_of = {}
    for dependency in (*asked, *more):
        artifact = dependency.artifact
        coordinates = f"{artifact.groupId}:{artifact.artifactId}:{artifact.version}"
        dropped = artifact.classifier or coordinates.startswith(release.without or (" ",))
        if not dropped:  # classifiers mark native code, which is optional
            sha256_of[coordinates] = hashlib.sha256(artifact.resolve().read_bytes()).hexdigest()
    return [f"{sha256}  {coordinates}" for coordinates, sha256 in sorted(sha256_of.items())]


def main() -> None:
    """Write all lock files."""
    for release in RELEASES:
        locked = lines(release)
        head = f"# {release.name}: SHA-256 and coordinates, by sunshower/dev/locking.py"
        release.lock.write_text("\n".join([head, *locked, ""]), encoding="utf-8")
        sys.stderr.write(f"{release.lock.name}: {len(locked)} jars\n")


if __name__ == "__main__":
    main()
