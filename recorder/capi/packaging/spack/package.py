# SPDX-License-Identifier: (Apache-2.0 OR MIT)
"""Annals for Spack. `README.md` in the directory above says how it is used, and what was tried."""

import os

from spack.package import *

try:  # Spack 1.0 and later have base classes in the repository of packages.
    from spack_repo.builtin.build_systems.generic import Package
except ImportError:
    pass


class Annals(Package):
    """Records what a parallel program does, event by event, and puts the events of all its processes into one global order."""

    # No release has an address yet: the source is a file in the directory where `spack` is called.
    manual_download = True
    url = f"file://{os.getcwd()}/annals-0.1.0.tar.gz"

    license("MIT OR Apache-2.0", checked_by="the Annals developers")

    version("0.1.0")

    variant("optimize", default=True, description="Build what is released, which takes twice as long (Cargo's profile dist)")

    # Linux with glibc only.
    for other in ("platform=darwin", "platform=windows", "platform=freebsd"):
        conflicts(other)
    requires("target=x86_64:", "target=aarch64:", policy="any_of", msg="Annals is for x86-64 and AArch64")

    # MPI is not needed for the build: one library records every MPI.
    depends_on("c", type="build")
    depends_on("rust@1.93:", type="build")

    sanity_check_is_file = [
        join_path("bin", "trace-cli"),
        join_path("bin", "trace-merge"),
        join_path("lib", "libannals_mpi.so"),
        join_path("include", "annals.h"),
    ]

    def install(self, spec, prefix):
        # Crates are downloaded while it builds, as Spack's packages of Cargo do.
        arguments = ["--prefix", prefix]
        if spec.satisfies("+optimize"):
            arguments.append("--optimize")
        with set_env(CARGO_HOME=join_path(self.stage.path, "cargo")):
            which("bash", required=True)("recorder/capi/install.sh", *arguments)

    @run_after("install")
    @on_package_attributes(run_tests=True)
    def check_install(self):
        Executable(self.prefix.bin.join("trace-cli"))("doctor")
