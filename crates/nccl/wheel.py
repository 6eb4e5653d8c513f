#!/usr/bin/env python3
"""Makes the wheel `symmetra-nccl` of a library: `crates/nccl/wheel.py LIBRARY FOLDER` prints the path of the wheel. The wheel
has no code for one version of Python. Its tag names the newest glibc that the library needs."""

import base64
import hashlib
import pathlib
import re
import subprocess
import sys
import zipfile

PACKAGE = pathlib.Path(__file__).resolve().parent
ROOT = PACKAGE.parent.parent
NAME = "symmetra_nccl"


def version():
    """The version of the workspace."""
    text = (ROOT / "Cargo.toml").read_text()
    return re.search(r'\[workspace\.package\]\nversion = "([^"]+)"', text).group(1)


def tag(library):
    """The tag of the wheel."""
    needed = subprocess.run(["readelf", "--version-info", "--wide", library], check=True, capture_output=True, text=True).stdout
    versions = [(int(major), int(minor)) for major, minor in re.findall(r"GLIBC_(\d+)\.(\d+)", needed)]
    major, minor = max(versions)
    return f"py3-none-manylinux_{major}_{minor}_x86_64"


def write(library, folder):
    """Writes the wheel and returns its path."""
    release, kind = version(), tag(library)
    info = f"{NAME}-{release}.dist-info"
    metadata = f"""Metadata-Version: 2.1
Name: symmetra-nccl
Version: {release}
Summary: A library with the names of NCCL that runs communicators of one host on symmetra's kernels
License: MIT OR Apache-2.0
Requires-Python: >=3.9
Description-Content-Type: text/markdown

{(PACKAGE / "README.md").read_text()}"""
    files = {f"{NAME}/{file.name}": file.read_bytes() for file in sorted((PACKAGE / "python" / NAME).glob("*.py"))}
    files[f"{NAME}/libsymmetra_nccl.so"] = pathlib.Path(library).read_bytes()
    for licence in ["LICENSE-APACHE", "LICENSE-MIT"]:
        files[f"{info}/licenses/{licence}"] = (ROOT / licence).read_bytes()
    files[f"{info}/METADATA"] = metadata.encode()
    files[f"{info}/WHEEL"] = f"Wheel-Version: 1.0\nGenerator: wheel.py\nRoot-Is-Purelib: false\nTag: {kind}\n".encode()
    digest = lambda data: base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
    record = [f"{name},sha256={digest(data)},{len(data)}" for name, data in files.items()]
    files[f"{info}/RECORD"] = "\n".join([*record, f"{info}/RECORD,,", ""]).encode()
    path = pathlib.Path(folder) / f"{NAME}-{release}-{kind}.whl"
    path.parent.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as wheel:
        for name, data in files.items():
            # A fixed date: the same files make the same wheel.
            wheel.writestr(zipfile.ZipInfo(name, (2000, 1, 1, 0, 0, 0)), data, zipfile.ZIP_DEFLATED)
    return path


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    print(write(sys.argv[1], sys.argv[2]))
