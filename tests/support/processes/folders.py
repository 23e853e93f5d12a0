"""What folders hold."""


def content(root):
    """Every file below a folder, as it is."""
    return {str(path.relative_to(root)): path.read_bytes()[:20] for path in root.rglob("*") if path.is_file()}
