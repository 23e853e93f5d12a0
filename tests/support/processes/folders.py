"""Read the content of folders."""


def content(root):
    """Return the first bytes of every file below a folder, by relative path."""
    return {str(path.relative_to(root)): path.read_bytes()[:20] for path in root.rglob("*") if path.is_file()}
