//! How `libannals_instrument.so` is linked.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    // Before 1.0, each minor version may change the interface.
    let (major, minor) = (
        env!("CARGO_PKG_VERSION_MAJOR"),
        env!("CARGO_PKG_VERSION_MINOR"),
    );
    println!("cargo::rustc-cdylib-link-arg=-Wl,-soname,libannals_instrument.so.{major}.{minor}");
    // Threads that recorded call into the library when they end, and so does process exit:
    // `dlclose` must leave it where it is.
    println!("cargo::rustc-cdylib-link-arg=-Wl,-z,nodelete");
}
